"""`@inflight`: requests that join and leave a running computation between its steps.

The method is called again and again with the items that are in flight. A slow listener pauses its
own item: its chunks are bounded, and the steps go on without it until it has caught up.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from preroll.worker import context as request_context
from preroll.worker.context import Context
from preroll.worker.errors import StageFatal
from preroll.worker.metrics import SECONDS, SIZES, Metrics
from preroll.worker.outbox import Outbox
from preroll.worker.threads import Threads


def inflight(
    max_size: int, *, max_open: int | None = None, buffer: int = 64
) -> Callable[[Callable[..., Any]], Any]:
    """Makes `step(self, active)` into a method that is called with one request's body and gives
    an async iterator of the chunks that the steps emit for it.

    At most `max_size` items are in a step. `max_open` (default `max_size`) may have begun: with
    more, a paused item leaves its place to another, at the cost of its state's memory. `buffer`:
    chunks that wait for a listener before its item pauses.

    When a step raises, all its items fail: their common state is unknown. `item.fail(error)`
    fails one. Raises ValueError for a size below 1.
    """
    for name, value in (("max_size", max_size), ("buffer", buffer)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"inflight {name} = {value!r}; allowed: an integer of at least 1")
    if max_open is not None and max_open < max_size:
        raise ValueError(f"inflight max_open = {max_open}; allowed: at least max_size, {max_size}")
    return lambda function: Stepped(function, max_size, max_open or max_size, buffer)


class Item:
    """One request in flight. `state` is the stage's own, None when the item joins."""

    __slots__ = ("_outbox", "context", "input", "is_finished", "joined_s", "state")

    def __init__(self, body: Any, context: Context | None, outbox: Outbox) -> None:
        self.input = body
        self.context = context
        self.state: Any = None
        self.is_finished = False
        self.joined_s = time.monotonic()
        self._outbox = outbox

    @property
    def cancelled(self) -> bool:
        """The client has left: the item is not in the next step."""
        return self._outbox.is_closed and not self.is_finished

    @property
    def is_paused(self) -> bool:
        return self._outbox.is_full

    def emit(self, chunk: Any) -> None:
        """Sends a chunk to this item's client when the step ends. Never blocks."""
        if not self._outbox.is_closed:
            self._outbox.put(chunk)

    def finish(self) -> None:
        """The item is complete; it is not in the next step."""
        self.is_finished = True
        self._outbox.close()

    def fail(self, error: BaseException) -> None:
        """Fails this item alone."""
        self.is_finished = True
        self._outbox.close(error)


class Stepped:
    """The method on the class; each instance gets a `Stepper` of its own."""

    preroll_gathers = "inflight"

    def __init__(
        self, function: Callable[..., Any], max_size: int, max_open: int, buffer: int
    ) -> None:
        self.function = function
        self.max_size = max_size
        self.max_open = max_open
        self.buffer = buffer
        self.on_left: Callable[..., None] | None = None
        self.preroll_routes = getattr(function, "preroll_routes", ())
        self.__doc__ = function.__doc__

    def left(self, function: Callable[..., None]) -> Callable[..., None]:
        """Decorates a method that is called with each item that has left (finished, failed or
        cancelled), between two steps, to free what its state holds."""
        self.on_left = function
        return function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        made = instance.__dict__.setdefault("_preroll_gatherers", {})
        if self not in made:
            made[self] = Stepper(self, instance)
        return made[self]


class Stepper:
    """Runs the steps of one stage's method. Used from the event loop only."""

    def __init__(self, stepped: Stepped, instance: Any) -> None:
        self.max_size = stepped.max_size
        self._max_open = stepped.max_open
        self._buffer = stepped.buffer
        self._call = stepped.function.__get__(instance)
        self._on_left = stepped.on_left.__get__(instance) if stepped.on_left else None
        self.name = stepped.function.__qualname__
        self._is_async = inspect.iscoroutinefunction(stepped.function)
        self._threads = Threads(1, f"steps-{stepped.function.__name__}")
        self._waiting: deque[Item] = deque()
        self._open: list[Item] = []
        self._gone: list[Item] = []
        self._is_stepping = False
        self._task: asyncio.Future[Any] | None = None
        label = stepped.function.__name__
        metrics: Metrics = getattr(instance, "preroll_metrics", None) or Metrics()
        self._sizes = metrics.histogram("preroll_worker_step_size", SIZES, method=label)
        self._seconds = metrics.histogram("preroll_worker_step_seconds", SECONDS, method=label)
        self._waits = metrics.histogram("preroll_worker_join_wait_seconds", SECONDS, method=label)
        metrics.gauge("preroll_worker_step_waiting", lambda: len(self._waiting), method=label)
        metrics.gauge(
            "preroll_worker_step_paused",
            lambda: sum(item.is_paused for item in self._open),
            method=label,
        )

    async def __call__(self, body: Any) -> AsyncIterator[Any]:
        """The chunks of one item; it leaves when the iterator is closed."""
        outbox = Outbox(self._buffer, self._go)
        item = Item(body, request_context.current(), outbox)
        self._waiting.append(item)
        self._go()
        try:
            async for chunk in outbox:
                yield chunk
        finally:
            outbox.close()
            self._go()

    def _go(self) -> None:
        """Starts the next step unless one runs or nothing can be done."""
        if self._is_stepping:
            return
        active = self._select()
        gone, self._gone = self._gone, []
        if not active and not (gone and self._on_left):
            return
        self._is_stepping = True
        if active:
            self._sizes.observe(len(active))
        # Steps belong to no single request.
        outside = contextvars.copy_context()
        outside.run(request_context.clear)
        began_s = time.monotonic()
        if self._is_async:
            loop = asyncio.get_running_loop()
            self._task = outside.run(loop.create_task, self._step_async(gone, active))
        else:
            self._task = outside.run(self._threads.submit, self._step, gone, active).future
        self._task.add_done_callback(lambda done: self._stepped(done, active, began_s))

    def _select(self) -> list[Item]:
        """Takes out who has left, lets in who waits, and picks the items of the next step."""
        staying: list[Item] = []
        for item in self._open:
            (self._gone if item.is_finished or item.cancelled else staying).append(item)
        self._open = staying
        while self._waiting and len(self._open) < self._max_open:
            item = self._waiting.popleft()
            if not item.cancelled:
                self._waits.observe(time.monotonic() - item.joined_s)
                self._open.append(item)
        ready = [item for item in self._open if not item.is_paused]
        active = ready[: self.max_size]
        if len(ready) > len(active):  # the others go first next time
            chosen = set(map(id, active))
            self._open = [i for i in self._open if id(i) not in chosen] + active
        return active

    def _step(self, gone: list[Item], active: list[Item]) -> None:
        if self._on_left is not None:
            for item in gone:
                self._on_left(item)
        if active:
            self._call(active)

    async def _step_async(self, gone: list[Item], active: list[Item]) -> None:
        if self._on_left is not None:
            for item in gone:
                self._on_left(item)
        if active:
            await self._call(active)
            await asyncio.sleep(0)  # a step that never waits must not keep the loop

    def _stepped(self, done: asyncio.Future[Any], active: list[Item], began_s: float) -> None:
        self._is_stepping = False
        self._seconds.observe(time.monotonic() - began_s)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            if isinstance(error, asyncio.CancelledError):
                error = RuntimeError(f"{self.name}: the step was cancelled")
            whole = isinstance(error, StageFatal)
            for item in [*active, *(self._open if whole else ())]:
                if not item.is_finished:
                    item.fail(error)
        # The next step first: it runs in its thread while the chunks of this one are sent.
        self._go()
        for item in active:
            item._outbox.wake()
