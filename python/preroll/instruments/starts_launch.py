"""One cold launch of a command through a holder: stamped, billed, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Self

from preroll.backends.base import Limits, ProcessSpec, ProcessStatus, Stdio
from preroll.backends.local import LocalBackend
from preroll.core import Start, Wait
from preroll.engines import bill
from preroll.engines.base import Mark
from preroll.engines.cause import real_cause
from preroll.errors import InputError, PrerollError, UnavailableError
from preroll.instruments.starts_ready import Answers, Connects, Ends, Ready

STAGE = "run"
LINES_SHOWN = 10
NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Command:
    """What to launch. `after_ready`: what still belongs to the start once it is ready (warm-up);
    `address`: where it then listens ("unix:/path" or "tcp:HOST:PORT"), where that is known;
    `keepalive_ms`: as in the door's tables."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    ready: Ready
    timeout_s: float
    marks: tuple[Mark, ...] = ()
    pty: bool = False
    limits: Limits = NO_LIMITS
    after_ready: Callable[[], Awaitable[None]] | None = None
    stage: str = STAGE
    address: str = ""
    keepalive_ms: int = 4000


class Holders:
    """Holders of the state directory `root`, which is removed behind it; an async context.

    What a killed predecessor has left running in `root` is ended first.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root = root
        self._backend = LocalBackend(root)

    async def __aenter__(self) -> Self:
        await self._end_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end_all()
        self._backend.close()
        shutil.rmtree((self._root / "run").resolve(), ignore_errors=True)
        shutil.rmtree(self._root, ignore_errors=True)

    async def _end_all(self) -> None:
        left = await self._backend.adopt()
        for status in (*left.running, *left.exited):
            await end(self._backend, status.id)


class HolderLauncher(Holders):
    """Launches commands under holders. `make` gives the command of each launch, with a folder for
    its sockets: no two launches share a port or a socket, so that none finds what the one before
    has left."""

    def __init__(self, root: Path, make: Callable[[Path], Command]) -> None:
        super().__init__(root)
        self._make = make

    async def __call__(self, number: int) -> Start:
        return await self.launch(number).start()

    def launch(self, number: int) -> Launch:
        """The launch of that number, not begun."""
        folder = self._root / f"{number}"
        folder.mkdir(exist_ok=True)
        return Launch(self._make(folder), self._backend, f"{STAGE}-{number}")


class Launch:
    """One launch of a command: from spawn until it is ready, and then its end."""

    def __init__(self, command: Command, backend: LocalBackend, name: str) -> None:
        self.command = command
        self._backend = backend
        self._name = name

    async def start(self) -> Start:
        """The start alone; see `running` for what it raises."""
        async with self.running() as start:
            return start

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Start]:
        """Ready inside the context, ended behind it.

        Raises InputError when the command could not be told from something that runs already,
        UnavailableError with the cause when it did not get ready."""
        ready = self.command.ready
        if isinstance(ready, (Connects, Answers)) and await ready.is_so_now():
            raise InputError(f"{ready}: something answers there before the launch; end it first")
        # An interrupt while the holder starts must not lose it: it is waited for, then ended.
        starting = asyncio.ensure_future(self._backend.start(self._spec()))
        try:
            yield await self._until_ready(await asyncio.shield(starting))
        finally:
            with contextlib.suppress(PrerollError, asyncio.CancelledError):
                await starting
            await asyncio.shield(end(self._backend, self._name))

    def _spec(self) -> ProcessSpec:
        command = self.command
        return ProcessSpec(
            id=self._name,
            argv=command.argv,
            env=command.env,
            cwd=command.cwd,
            stdio=Stdio.PTY if command.pty else Stdio.PIPES,
            limits=command.limits,
            tail_lines=100_000,
        )

    async def _until_ready(self, status: ProcessStatus) -> Start:
        ended = asyncio.create_task(self._backend.wait(self._name))
        ready = asyncio.create_task(self._ready_ns())
        try:
            await asyncio.wait(
                (ended, ready),
                timeout=self.command.timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if ready.done():
                return await self._bill(status, *ready.result())
            if ended.done() and is_success(ended.result(), self.command.ready):
                exited_ns = ended.result().exited_ns or 0
                return await self._bill(status, exited_ns, exited_ns)
            raise UnavailableError(await self._why(ended))
        finally:
            for task in (ended, ready):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, PrerollError):
                    await task

    async def _ready_ns(self) -> tuple[int, int]:
        """When it was ready, and when what belongs to the start after that was done."""
        command = self.command
        ready_ns = await command.ready(self._backend.lines(self._name, follow=True))
        if command.after_ready is None:
            return ready_ns, ready_ns
        await command.after_ready()
        return ready_ns, monotonic_ns()

    async def _bill(self, status: ProcessStatus, ready_ns: int, done_ns: int) -> Start:
        kept = self._backend.lines(self._name)
        lines = [bill.Line(line.t_ns, line.text) async for line in kept]
        steps = [bill.Step(ready_ns, Wait.WARM, "warm-up")] if done_ns > ready_ns else []
        spawned_ns = status.spawned_ns or 0
        command = self.command
        return bill.bill(
            self._name, command.stage, spawned_ns, done_ns, lines, command.marks, steps
        )

    async def _why(self, ended: asyncio.Task[ProcessStatus]) -> str:
        said = [line.text async for line in self._backend.lines(self._name)]
        if ended.done():
            how = how_it_ended(ended.result())
        else:
            how = f"not ready within {self.command.timeout_s:g} s"
        cause = real_cause(said)
        shown = [f"  {line}" for line in said[-LINES_SHOWN:] if cause not in line]
        return "\n".join([how, *shown, *([f"  {cause}"] if cause else [])])


async def end(backend: LocalBackend, name: str) -> None:
    with contextlib.suppress(PrerollError):
        await backend.kill(name)
        await backend.release(name)


def is_success(status: ProcessStatus, ready: Ready) -> bool:
    return isinstance(ready, Ends) and status.exit is not None and status.exit.code == 0


def how_it_ended(status: ProcessStatus) -> str:
    if status.error:
        return status.error
    if status.exit is None:
        return "ended before it was ready"
    if status.exit.signal is not None:
        return f"killed by signal {status.exit.signal} before it was ready"
    return f"ended with status {status.exit.code} before it was ready"


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a launch: this process's, and what the command adds."""
    return {**os.environ, **(extra or {})}
