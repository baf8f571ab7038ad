"""One request of a connection, and its answer: ASGI's scope, `receive` and `send`."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from preroll.worker import reporting

if TYPE_CHECKING:
    from preroll.worker.connection import Connection

ON_LEFT = "preroll.on_left"
"""A scope's own key: takes the function that is called when the client leaves before its answer
is complete. What serves the application without it lets it find out by `receive`."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Above this, a second write costs less than a copy of the body beside its head.
MAX_COPIED_BYTES = 64 << 10
WITHOUT_BODY = (204, 304)
STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}


class Cycle:
    """The head of an answer leaves with its first body, by one write, or at the end of the loop's
    pass when none comes by then."""

    __slots__ = (
        "_connection",
        "_head",
        "_is_bodiless",
        "_is_chunked",
        "_is_end_read",
        "_is_gone",
        "_is_started",
        "_news",
        "_num_unread",
        "_on_left",
        "_parts",
        "_scope",
        "is_body_complete",
        "is_complete",
        "keep_alive",
        "task",
    )

    def __init__(self, connection: Connection, scope: dict[str, Any], keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.is_body_complete = False
        self.is_complete = False
        """Whether the whole answer was handed to the transport."""
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._scope = scope
        self._parts: list[bytes] = []
        self._num_unread = 0
        self._news: asyncio.Event | None = None
        self._on_left: Callable[[], None] | None = None
        self._is_gone = False
        self._is_started = False
        self._is_chunked = False
        self._is_bodiless = False
        self._is_end_read = False
        self._head = b""
        scope[ON_LEFT] = self._set_on_left

    async def run(self, app: Any) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except asyncio.CancelledError:
            pass  # the connection is broken off below
        except BaseException as error:
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            reporting.say(f"the worker failed\n{trace.rstrip()}")
        finally:
            self._on_left = None
            del self._scope[ON_LEFT]  # a circle of references, for the garbage collector to find
            self._connection.ended(self)

    def _set_on_left(self, call: Callable[[], None]) -> None:
        self._on_left = call
        if self._is_gone:
            call()

    # From the connection ---------------------------------------------------------------------

    def feed(self, body: bytes) -> int:
        """Takes a part of the body; returns the bytes that nobody has read yet."""
        if self.is_complete:
            return 0  # answered without being read to its end
        self._parts.append(body)
        self._num_unread += len(body)
        if self._news is not None:
            self._news.set()
        return self._num_unread

    def feed_end(self) -> None:
        self.is_body_complete = True
        if self._news is not None:
            self._news.set()

    def lost(self) -> None:
        """The client is gone."""
        if self._is_gone:
            return
        self._is_gone = True
        if self._news is not None:
            self._news.set()
        if self._on_left is not None and not self.is_complete:
            self._on_left()

    # ASGI ------------------------------------------------------------------------------------

    async def receive(self) -> dict[str, Any]:
        while not (self._is_gone or self.is_complete):
            if self._parts or (self.is_body_complete and not self._is_end_read):
                parts, self._parts, self._num_unread = self._parts, [], 0
                self._is_end_read = self.is_body_complete
                body = parts[0] if len(parts) == 1 else b"".join(parts)
                return {"type": "http.request", "body": body, "more_body": not self._is_end_read}
            await self._wait_for_news()
        return {"type": "http.disconnect"}

    async def _wait_for_news(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
            if not self.is_body_complete and not self._is_started and self._is_continue_expected():
                self._connection.transport.write(CONTINUE)
        self._news.clear()
        self._connection.resume_reading()
        await self._news.wait()

    def _is_continue_expected(self) -> bool:
        headers = self._scope["headers"]
        return any(n == b"expect" and v.lower() == b"100-continue" for n, v in headers)

    async def send(self, message: dict[str, Any]) -> None:
        connection = self._connection
        if connection.writable is not None and not connection.writable.is_set():
            await connection.writable.wait()
        if self._is_gone:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message["headers"])
            return
        body, is_last = message["body"], not message.get("more_body", False)
        if self._is_bodiless:
            data = self._head
        elif self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            data = b"%b%b0\r\n\r\n" % (self._head, chunk) if is_last else self._head + chunk
        elif len(body) > MAX_COPIED_BYTES:
            connection.transport.write(self._head)
            data = body
        else:
            data = self._head + body
        self._head = b""
        connection.transport.write(data)
        if is_last:
            self.is_complete = True
            connection.answered(self)

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._is_started = True
        lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        has_length = False
        for name, value in headers:
            if name == b"content-length":
                has_length = True
            elif name == b"connection":
                self.keep_alive = self.keep_alive and b"close" not in value.lower()
                continue
            elif name == b"transfer-encoding":
                continue  # between two hops, and said below
            lines.append(b"%b: %b\r\n" % (name, value))
        self._is_bodiless = self._scope["method"] == "HEAD" or status in WITHOUT_BODY
        if not has_length and not self._is_bodiless:
            # Without chunks, the end of the connection is the end of the body.
            self._is_chunked = self._scope["http_version"] != "1.0"
            if self._is_chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            # A stream's first chunk may be a long time in coming.
            self._connection.loop.call_soon(self._flush)
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def _flush(self) -> None:
        if self._head and not self._is_gone:
            self._connection.transport.write(self._head)
            self._head = b""
