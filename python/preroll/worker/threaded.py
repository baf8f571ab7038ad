"""A synchronous generator, run in one thread, as an async iterator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from preroll.worker.context import Context
from preroll.worker.outbox import Outbox
from preroll.worker.threads import Job, Threads

# Chunks that a generator may be ahead of its listener.
AHEAD = 16


class ThreadedIterator:
    """Runs the generator at most `AHEAD` chunks ahead; `aclose` ends it at its next yield."""

    def __init__(self, iterator: Iterator[Any], threads: Threads, context: Context) -> None:
        self._iterator = iterator
        self._context = context
        self._room = threading.Event()
        self._is_cancelled = False
        self._outbox = Outbox(AHEAD, self._room.set)
        self.job: Job = threads.submit(self._run)

    def _run(self) -> None:
        try:
            for chunk in self._iterator:
                if self._is_cancelled or self._context.cancelled:
                    break
                # Cleared before the look at `is_full`: room made in between is not missed.
                self._room.clear()
                self._outbox.put(chunk)
                self._outbox.wake_threadsafe()
                while self._outbox.is_full and not self._is_cancelled:
                    self._room.wait()
                    self._room.clear()
                if self._is_cancelled:
                    break
        except BaseException as error:
            self._outbox.close(error)
        finally:
            close = getattr(self._iterator, "close", None)
            try:
                if close is not None:
                    close()
            except BaseException as error:
                self._outbox.close(error)
            self._outbox.close()
            self._outbox.wake_threadsafe()

    def __aiter__(self) -> ThreadedIterator:
        return self

    async def __anext__(self) -> Any:
        return await self._outbox.__anext__()

    async def aclose(self) -> None:
        self._is_cancelled = True
        self._room.set()
