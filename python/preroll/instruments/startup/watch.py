"""From spawn to ready, or to whatever ends the run before: what was seen, kept within bounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import monotonic_ns

from preroll.backends.base import Line, ProcessSpec, ProcessStatus
from preroll.backends.local import LocalBackend
from preroll.errors import PrerollError, UnavailableError
from preroll.instruments.starts_launch import end, how_it_ended, is_success
from preroll.instruments.starts_ready import Ends, LineMatches, Ready
from preroll.instruments.startup.base import Outcome
from preroll.instruments.startup.recorder import Recorder, Recording

# The first and the last so many lines are kept; a command may print a gigabyte between them.
LINES_KEPT = 10_000
LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed. Times: CLOCK_MONOTONIC ns. `lines_missed`: printed and not kept."""

    outcome: Outcome
    message: str
    spawned_ns: int
    ready_ns: int
    lines: tuple[Line, ...]
    lines_missed: int
    recording: Recording | None
    mode: str
    reason: str
    cpu_s: float | None
    notes: tuple[str, ...]


# Outcome, message, when, and the last status.
Over = tuple[Outcome, str, int, ProcessStatus]


def interrupted(status: ProcessStatus) -> Over:
    return Outcome.INTERRUPTED, "interrupted", monotonic_ns(), status


class Watch:
    """Runs one specification until it is ready, crashed, timed out or interrupted."""

    def __init__(
        self, backend: LocalBackend, spec: ProcessSpec, ready: Ready, recorder: Recorder | None
    ) -> None:
        self._backend = backend
        self._spec = spec
        self._ready = ready
        self._recorder = recorder
        self._first: list[Line] = []
        self._last: deque[Line] = deque(maxlen=LINES_KEPT)
        self._notes: list[str] = []

    async def run(
        self, timeout_s: float, on_ready: Callable[[], Awaitable[None]] | None = None
    ) -> Seen:
        # An interrupt while the holder starts must lose neither it nor what there is to tell: it is
        # waited for, then ended. The command may run already.
        starting = asyncio.ensure_future(self._start())
        try:
            try:
                status = await asyncio.shield(starting)
            except asyncio.CancelledError:
                status = await starting
                outcome, message, ready_ns, last = interrupted(status)
            else:
                outcome, message, ready_ns, last = await self._until_over(status, timeout_s)
            seen = await self._seen(outcome, message, status, ready_ns, last)
            if outcome is Outcome.READY and on_ready is not None:
                await on_ready()
            return seen
        finally:
            with contextlib.suppress(PrerollError, asyncio.CancelledError):
                await starting
            await asyncio.shield(end(self._backend, self._spec.id))

    async def _start(self) -> ProcessStatus:
        status = await self._backend.start(self._spec)
        if status.pid is not None and self._recorder is not None:
            await self._recorder.follow(status.pid, status.owner_pid, status.spawned_ns or 0)
        return status

    async def _until_over(self, status: ProcessStatus, timeout_s: float) -> Over:
        """How it was over: by readiness, an end, an interrupt, or patience."""
        ended = asyncio.create_task(self._ended())
        ready = asyncio.create_task(self._ready(self._kept()))
        reading = [] if isinstance(self._ready, LineMatches) else [self._read_first()]
        tasks = (ended, ready, *(asyncio.create_task(one) for one in reading))
        try:
            await asyncio.wait(
                (ended, ready), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            return interrupted(status)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if ready.done() and not ready.cancelled() and ready.exception() is None:
            return Outcome.READY, "ready", ready.result(), await self._status(status)
        if not ended.done() or ended.cancelled():
            now = monotonic_ns()
            last = await self._status(status)
            return Outcome.TIMED_OUT, f"not ready within {timeout_s:g} s", now, last
        last = ended.result()
        when = last.exited_ns or last.spawned_ns or monotonic_ns()
        if is_success(last, self._ready):
            return Outcome.READY, "ended with status 0", when, last
        if last.exit is not None and last.exit.code == 0:
            return Outcome.ENDED, how_it_ended(last), when, last
        return Outcome.CRASHED, how_it_ended(last), when, last

    async def _ended(self) -> ProcessStatus:
        """The status once nothing is left, or once the first process has failed."""
        gone = asyncio.create_task(self._backend.wait(self._spec.id))
        try:
            while True:
                done, _ = await asyncio.wait((gone,), timeout=LOOK_S)
                if done:
                    return gone.result()
                status = await self._backend.status(self._spec.id)
                if status.exit is not None and status.exit.code != 0:
                    return status
        finally:
            gone.cancel()

    async def _status(self, before: ProcessStatus) -> ProcessStatus:
        try:
            return await self._backend.status(self._spec.id)
        except UnavailableError:
            return before

    async def _kept(self) -> AsyncIterator[Line]:
        async for line in self._backend.lines(self._spec.id, follow=True):
            self._keep(line)
            yield line

    async def _read_first(self) -> None:
        """Reads along while lines are few: beyond that the end is read when it is over."""
        async for _ in self._kept():
            if len(self._first) >= LINES_KEPT:
                return

    def _keep(self, line: Line) -> None:
        (self._first if len(self._first) < LINES_KEPT else self._last).append(line)

    async def _seen(
        self,
        outcome: Outcome,
        message: str,
        status: ProcessStatus,
        ready_ns: int,
        last: ProcessStatus,
    ) -> Seen:
        spawned_ns = status.spawned_ns or ready_ns
        recording, mode, reason = None, "off", "asked for"
        announced = outcome is Outcome.READY and not isinstance(self._ready, Ends)
        if self._recorder is not None:
            mode, reason = self._recorder.mode, self._recorder.reason
            if status.pid is not None and ready_ns > spawned_ns:
                recording = await self._recorder.explain(
                    spawned_ns, ready_ns, by_first=not announced
                )
        await self._read_rest()
        # The last words of a process that has ended are read, and stamped, after its end.
        kept = (*self._first, *self._last)
        lines = tuple(line for line in kept if not announced or line.t_ns <= ready_ns)
        if last.error:
            self._notes.append(last.error)
        usage = last.usage
        return Seen(
            outcome=outcome,
            message=message,
            spawned_ns=spawned_ns,
            ready_ns=ready_ns,
            lines=lines,
            lines_missed=self._missed(),
            recording=recording,
            mode=mode,
            reason=reason,
            cpu_s=usage.cpu_ns / 1e9 if usage else None,
            notes=tuple(self._notes),
        )

    async def _read_rest(self) -> None:
        newest = max((line.n for line in (*self._first[-1:], *list(self._last)[-1:])), default=0)
        try:
            async for line in self._backend.lines(self._spec.id, newest):
                self._keep(line)
        except UnavailableError as error:
            self._notes.append(f"the last lines could not be read: {error}")

    def _missed(self) -> int:
        newest = max((line.n for line in (*self._first[-1:], *list(self._last)[-1:])), default=0)
        return newest - len(self._first) - len(self._last)
