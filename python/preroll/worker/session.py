"""One WebSocket, as a stage's `session` sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any

from preroll.worker.answer import error_body, to_json
from preroll.worker.context import Context

# What a session has not read yet: beyond this its client is slowed down.
MAX_UNREAD_BYTES = 1 << 20
MAX_UNREAD_MESSAGES = 1024
# Seconds for the code after its loop over the messages, once the client has left.
GRACE_S = 5.0


class SessionClosedError(ConnectionError):
    """The other side has closed the session; `code` is its WebSocket close code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the session is closed (code {code})")
        self.code = code


class Session:
    """Messages are `str` or `bytes`, as they were sent; iterating ends when the client leaves.

    The session is accepted at the first receive or send, or by `accept`; `reject` refuses it. A
    client that leaves while the code waits for anything but a message cancels it.
    """

    def __init__(self, context: Context, receive: Any, send: Any, task: asyncio.Task[Any]) -> None:
        self.context = context
        self.subprotocols: list[str] = list(context.scope.get("subprotocols", ()))
        self.is_accepted = False
        self.close_code: int | None = None
        self._receive = receive
        self._send = send
        self._task = task
        self._unread: deque[str | bytes] = deque()
        self._num_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._grace: asyncio.TimerHandle | None = None
        self.num_chunks = 0
        self.is_sending = False
        self.is_slow = False

    async def accept(self, subprotocol: str | None = None) -> None:
        if self.is_accepted:
            return
        self.is_accepted = True
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol})
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def reject(self, status: int, message: str, kind: str = "refused") -> None:
        """Answers the handshake with an error instead."""
        if self.is_accepted:
            raise RuntimeError("the session is accepted already; close it")
        self.is_accepted, self.close_code = True, 1006
        await self._receive()
        body = error_body(status, kind, message)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        start = {"type": "websocket.http.response.start", "status": status, "headers": headers}
        await self._send(start)
        await self._send({"type": "websocket.http.response.body", "body": body})

    async def receive(self) -> str | bytes:
        """The next message. Raises SessionClosedError when the client has left."""
        await self.accept()
        while not self._unread:
            if self.close_code is not None:
                raise SessionClosedError(self.close_code)
            if self._waiter is not None:
                raise RuntimeError("two tasks wait for a message of the same session")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._unread.popleft()
        self._num_bytes -= len(message)
        if self._room is not None and not self._is_full() and not self._room.done():
            self._room.set_result(None)
        return message

    async def send(self, message: Any) -> None:
        """Sends str, bytes, or a dict or list as JSON; waits while the client is slow.

        Raises SessionClosedError when the client has left.
        """
        await self.accept()
        if self.close_code is not None:
            raise SessionClosedError(self.close_code)
        event: dict[str, Any] = {"type": "websocket.send"}
        if isinstance(message, str):
            event["text"] = message
        elif isinstance(message, (bytes, bytearray, memoryview)):
            event["bytes"] = bytes(message)
        else:
            event["text"] = to_json(message).decode()
        self.is_sending = True
        try:
            await self._send(event)
        except OSError:
            raise SessionClosedError(1006) from None
        finally:
            self.is_sending = False
        self.num_chunks += 1

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes from this side; a second time does nothing."""
        await self.accept()
        if self.close_code is not None:
            return
        self.close_code = code
        # A close frame holds 123 bytes of reason.
        reason = reason.encode()[:123].decode(errors="ignore")
        with contextlib.suppress(OSError):  # the client was faster
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    def __aiter__(self) -> Session:
        return self

    async def __anext__(self) -> str | bytes:
        try:
            return await self.receive()
        except SessionClosedError:
            raise StopAsyncIteration from None

    def _is_full(self) -> bool:
        return self._num_bytes >= MAX_UNREAD_BYTES or len(self._unread) >= MAX_UNREAD_MESSAGES

    async def _read(self) -> None:
        """Reads ahead, so that a client that leaves is noticed whatever the code does."""
        while True:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                self._left(event.get("code") or 1005)
                return
            text = event.get("text")
            message = text if text is not None else event["bytes"]
            self._unread.append(message)
            self._num_bytes += len(message)
            self._wake()
            if self._is_full():
                self._room = asyncio.get_running_loop().create_future()
                await self._room

    def _left(self, code: int) -> None:
        if self.close_code is None:
            self.close_code = code
        self.context.cancelled = True
        if self._waiter is not None:
            # The code learns of it by the end of its loop, and may still tidy up.
            self._wake()
            self._grace = asyncio.get_running_loop().call_later(GRACE_S, self._task.cancel)
        else:
            self._task.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """The code has returned: nothing of the session is left running."""
        if self._reader is not None:
            self._reader.cancel()
        if self._grace is not None:
            self._grace.cancel()
