"""A stream on its way out: its head with the first chunk, its pace, its slow listeners."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from preroll.worker import answer
from preroll.worker.answer import Response
from preroll.worker.context import Context
from preroll.worker.guard import leave_if_forked
from preroll.worker.pace import Pace

DONE = b"data: [DONE]\n\n"


class Stream:
    """Sends chunks as they come. `where` names the method in errors."""

    def __init__(
        self,
        send: Any,
        context: Context,
        where: str,
        content_type: bytes | None,
        pace: Pace | None,
        head: Response | None = None,
    ) -> None:
        self._head = head
        self._send = send
        self._context = context
        self._where = where
        self._default_type = content_type
        self._content_type = b""
        self._pace = pace
        self.is_started = False
        self.first_s: float | None = None
        self.num_chunks = 0
        self.is_sending = False
        """Whether a chunk waits for the client; with `num_chunks`, how a slow one is found."""
        self.is_slow = False

    @property
    def is_events(self) -> bool:
        return self._content_type.startswith(answer.EVENTS)

    async def put(self, chunk: Any) -> None:
        leave_if_forked()
        if not self.is_started:
            chunk = await self._start(chunk)
            if chunk is None:
                return
        body = answer.encode_chunk(chunk, self._where)
        if not body:
            return
        self.num_chunks += 1
        if self.first_s is None:
            self.first_s = time.monotonic()
        if self._pace is not None:
            self._pace.frame()
        self.is_sending = True
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        self.is_sending = False

    async def _start(self, first: Any) -> Any:
        """Sends the head that the first chunk asks for; returns the chunk that is left to send."""
        chunk: Any = first
        head = self._head
        if isinstance(first, Response):
            head, chunk = first, first.body or None
        kind = self._default_type
        if head is not None and head.content_type:
            kind = head.content_type.encode("latin-1")
        if chunk is not None:
            found = answer.chunk_type(chunk, self._where)
            kind = found if kind is None or found == answer.EVENTS else kind
        self._content_type = kind or answer.BYTES
        headers = answer.headers_of(self._content_type, None, head.headers if head else {})
        status = head.status if head else 200
        self.is_started = self._context.is_answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        return chunk

    async def end(self) -> None:
        if not self.is_started:
            await self._start(Response())
        body = DONE if self.is_events else b""
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def fail(self, status: int, kind: str, message: str) -> None:
        """Tells a listener of events why the stream ends here; it is never ended cleanly."""
        if self.is_events:
            event = b"event: error\ndata: " + answer.error_body(status, kind, message) + b"\n\n"
            await self._send({"type": "http.response.body", "body": event, "more_body": True})


class SlowListeners:
    """Finds streams and sessions that have waited for their client longer than `timeout_s`.

    One timer for all of them, and two attributes a chunk: `is_sending` and a counter.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._watched: dict[Any, list[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, sender: Any, task: asyncio.Task[Any]) -> None:
        self._watched[sender] = [task, -1, 0.0]
        if self._timer is None:
            self._arm()

    def remove(self, sender: Any) -> None:
        self._watched.pop(sender, None)

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(1.0, self._timeout_s / 4), self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = time.monotonic()
        for sender, seen in list(self._watched.items()):
            task, count, since_s = seen
            if not sender.is_sending or sender.num_chunks != count:
                seen[1], seen[2] = sender.num_chunks, now_s
            elif now_s - since_s > self._timeout_s:
                sender.is_slow = True
                del self._watched[sender]
                task.cancel()
        if self._watched:
            self._arm()
