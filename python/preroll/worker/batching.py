"""`@batch`: requests that came apart are computed together.

A batch leaves when it is full or when its oldest item has waited `max_wait`; one batch of a method
runs at a time, and what arrives meanwhile is the next one's, first come, first served.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from preroll.worker import context as request_context
from preroll.worker.errors import StageFatal
from preroll.worker.metrics import SECONDS, SIZES, Metrics
from preroll.worker.threads import Threads
from preroll.worker.units import duration_s


def batch(
    max_size: int, max_wait: str | float = "5ms", *, isolate: bool = True
) -> Callable[[Callable[..., Any]], Any]:
    """Makes a method that takes a list of items and returns as many results into one that takes
    one item and is awaited.

    A result that is an exception fails its own item. When the method raises, `isolate` runs the
    halves of the batch again, so that only the item at fault fails (its neighbours are computed
    more than once: the method must be free of side effects, or say `isolate=False`). An item
    whose client has left is taken out before the batch leaves.

    `max_wait`: `"5ms"` or seconds. Raises ValueError for a size below 1 or no duration.
    """
    if not isinstance(max_size, int) or max_size < 1:
        raise ValueError(f"batch max_size = {max_size!r}; allowed: an integer of at least 1")
    wait_s = duration_s(max_wait, "batch max_wait")
    return lambda function: Batched(function, max_size, wait_s, isolate)


class Batched:
    """The method on the class; each instance gets a `Gatherer` of its own."""

    preroll_gathers = "batch"

    def __init__(
        self, function: Callable[..., Any], max_size: int, max_wait_s: float, isolate: bool
    ) -> None:
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"{function.__qualname__}: a batched method returns a list")
        self.function = function
        self.max_size = max_size
        self.max_wait_s = max_wait_s
        self.isolate = isolate
        self.preroll_routes = getattr(function, "preroll_routes", ())
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        made = instance.__dict__.setdefault("_preroll_gatherers", {})
        if self not in made:
            made[self] = Gatherer(self, instance)
        return made[self]


class Entry:
    """One item on its way through a batch."""

    __slots__ = ("arrived_s", "future", "item", "run")

    def __init__(self, item: Any, future: asyncio.Future[Any]) -> None:
        self.item = item
        self.future = future
        self.arrived_s = time.monotonic()
        self.run: Run | None = None


class Run:
    """One batch being computed."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.task: asyncio.Task[None] | None = None

    def is_abandoned(self) -> bool:
        return all(entry.future.done() for entry in self.entries)


class Gatherer:
    """Gathers the items of one stage's method. Used from the event loop only."""

    def __init__(self, batched: Batched, instance: Any) -> None:
        self.max_size = batched.max_size
        self._max_wait_s = batched.max_wait_s
        self._isolate = batched.isolate
        self._call = batched.function.__get__(instance)
        self.name = batched.function.__qualname__
        self._is_async = inspect.iscoroutinefunction(batched.function)
        self._threads = Threads(1, f"batch-{batched.function.__name__}")
        self._waiting: deque[Entry] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._running: Run | None = None
        metrics: Metrics = getattr(instance, "preroll_metrics", None) or Metrics()
        label = batched.function.__name__
        self._sizes = metrics.histogram("preroll_worker_batch_size", SIZES, method=label)
        self._waits = metrics.histogram("preroll_worker_batch_wait_seconds", SECONDS, method=label)
        metrics.gauge("preroll_worker_batch_waiting", lambda: len(self._waiting), method=label)

    async def __call__(self, item: Any) -> Any:
        """The result of one item. Raises what the method raised, or returned, for it."""
        entry = Entry(item, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        self._plan()
        try:
            return await entry.future
        except asyncio.CancelledError:
            self._left(entry)
            raise

    def _left(self, entry: Entry) -> None:
        """The client of an item is gone: it is not computed, or nobody gets its result."""
        entry.future.cancel()
        if entry.run is None:
            self._waiting.remove(entry)
            self._plan()
        elif self._is_async and entry.run.is_abandoned() and entry.run.task is not None:
            entry.run.task.cancel()

    def _plan(self) -> None:
        """Lets a batch leave, or sets the timer for when it must."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is not None or not self._waiting:
            return
        waited_s = time.monotonic() - self._waiting[0].arrived_s
        if len(self._waiting) >= self.max_size or waited_s >= self._max_wait_s > 0:
            self._leave()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._max_wait_s - waited_s, self._leave)

    def _leave(self) -> None:
        self._timer = None
        num = min(self.max_size, len(self._waiting))
        run = self._running = Run([self._waiting.popleft() for _ in range(num)])
        now_s = time.monotonic()
        self._sizes.observe(num)
        for entry in run.entries:
            entry.run = run
            self._waits.observe(now_s - entry.arrived_s)
        # A batch belongs to no request: it must not carry the facts of the one that came last.
        outside = contextvars.copy_context()
        outside.run(request_context.clear)
        run.task = outside.run(asyncio.get_running_loop().create_task, self._work(run))

    async def _work(self, run: Run) -> None:
        try:
            await self._compute(run.entries)
        except asyncio.CancelledError:
            pass  # every client has left
        except BaseException as error:
            self._fail(run.entries, error)
        finally:
            self._running = None
            self._fail(run.entries, RuntimeError(f"{self.name}: the batch was given up"))
            self._plan()

    async def _compute(self, entries: Sequence[Entry]) -> None:
        live = [entry for entry in entries if not entry.future.done()]
        if not live:
            return
        try:
            results = self._checked(await self._invoke([entry.item for entry in live]), len(live))
        except StageFatal:
            raise
        except Exception as error:
            if len(live) == 1 or not self._isolate or isinstance(error, WrongResultsError):
                self._fail(live, error)
                return
            middle = len(live) // 2
            await self._compute(live[:middle])
            await self._compute(live[middle:])
            return
        for entry, result in zip(live, results, strict=True):
            if not entry.future.done():
                if isinstance(result, BaseException):
                    entry.future.set_exception(result)
                else:
                    entry.future.set_result(result)

    def _invoke(self, items: list[Any]) -> Coroutine[Any, Any, Any]:
        if self._is_async:
            coroutine: Coroutine[Any, Any, Any] = self._call(items)
            return coroutine
        return self._threads.run(self._call, items)

    def _checked(self, results: Any, num: int) -> Sequence[Any]:
        if isinstance(results, (str, bytes, dict)) or not hasattr(results, "__len__"):
            kind = type(results).__qualname__
            raise WrongResultsError(f"{self.name} returned {kind}; allowed: a list of {num}")
        if len(results) != num:
            message = f"{self.name} returned {len(results)} results for {num} items"
            raise WrongResultsError(message)
        checked: Sequence[Any] = results
        return checked

    def _fail(self, entries: Sequence[Entry], error: BaseException) -> None:
        for entry in entries:
            if not entry.future.done():
                entry.future.set_exception(error)


class WrongResultsError(TypeError):
    """A batched method did not return one result per item: none can be told apart."""
