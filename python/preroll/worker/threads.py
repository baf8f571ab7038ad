"""Bounded threads for synchronous code.

Daemons: a thread that never returns must not keep the process from ending. A job costs one queue
operation and one wake-up of the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from preroll.worker.guard import leave_if_forked


class Job:
    """One call in a thread. `ended` runs on the loop once the thread is free again."""

    __slots__ = ("arguments", "ended", "function", "future", "is_dropped", "is_ended")

    def __init__(
        self, future: asyncio.Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        self.future = future
        self.function = function
        self.arguments = arguments
        self.ended: Callable[[], None] | None = None
        self.is_dropped = False
        self.is_ended = False


class Threads:
    """At most `limit` threads, started as they are needed; jobs beyond wait in order."""

    def __init__(self, limit: int, name: str) -> None:
        self.limit = limit
        self._name = name
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Job:
        """Runs the call in a thread, in the caller's context. Await the job's future."""
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        job = Job(loop.create_future(), context.run, (function, *arguments))
        self._unfinished += 1
        if self._unfinished > len(self._threads) < self.limit:
            self._start(loop)
        self._jobs.put(job)
        return job

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self.submit(function, *arguments).future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, args=(loop,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            job = self._jobs.get()
            result, error = None, None
            if not job.is_dropped:
                try:
                    result = job.function(*job.arguments)
                except BaseException as raised:
                    error = raised
            leave_if_forked()
            # A reference kept here would keep the request's objects alive until the next job.
            job.function, job.arguments = _nothing, ()
            try:
                loop.call_soon_threadsafe(self._finish, job, result, error)
            except RuntimeError:
                return  # the loop is closed: the process ends
            del job, result, error

    def _finish(self, job: Job, result: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        job.is_ended = True
        if job.ended is not None:
            job.ended()
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
            return
        if isinstance(error, StopIteration):  # a future cannot carry it
            wrapped = RuntimeError("the stage's code raised StopIteration")
            wrapped.__cause__ = error
            error = wrapped
        job.future.set_exception(error)


def _nothing() -> None:
    """Takes the place of a job's function once it has run."""
