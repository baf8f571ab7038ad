"""Chunks between who makes them, in any thread, and the task that sends them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Outbox:
    """An async iterator of chunks put into it. `limit`: chunks after which it is full.

    It counts as full until half of them are gone; `on_room` is then called, on the loop.
    """

    __slots__ = (
        "_chunks",
        "_error",
        "_is_closed",
        "_is_full",
        "_is_signalled",
        "_limit",
        "_loop",
        "_waiter",
        "on_room",
    )

    def __init__(self, limit: int, on_room: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._chunks: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_signalled = False
        self._is_closed = False
        self._is_full = False
        self._error: BaseException | None = None
        self.on_room = on_room

    @property
    def is_full(self) -> bool:
        return self._is_full

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def put(self, chunk: Any) -> None:
        """Adds a chunk; the reader learns of it by `wake` or `wake_threadsafe`."""
        self._chunks.append(chunk)
        if len(self._chunks) >= self._limit:
            self._is_full = True

    def close(self, error: BaseException | None = None) -> None:
        """The reader gets what is there, then the end, or `error`."""
        if not self._is_closed:
            self._error = error
            self._is_closed = True

    def wake(self) -> None:
        self._is_signalled = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def wake_threadsafe(self) -> None:
        if not self._is_signalled:
            self._is_signalled = True
            self._loop.call_soon_threadsafe(self.wake)

    def __aiter__(self) -> Outbox:
        return self

    async def __anext__(self) -> Any:
        while not self._chunks:
            if self._is_full:  # filled from a thread just as its last chunk was taken
                self._is_full = False
                self.on_room()
            if self._is_closed:
                if self._chunks:  # put between the two looks, from a thread
                    break
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            await self._waiter
        chunk = self._chunks.popleft()
        if self._is_full and len(self._chunks) <= self._limit // 2:
            self._is_full = False
            self.on_room()
        return chunk
