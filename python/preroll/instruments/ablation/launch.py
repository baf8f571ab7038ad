"""One run of either arm, under a holder: prepared, watched, timed, and what its tree read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from preroll.backends.base import ProcessStatus
from preroll.backends.local import LocalBackend
from preroll.core import Start
from preroll.engines.base import Mark
from preroll.engines.bill import Line
from preroll.errors import InputError, PrerollError, UnavailableError
from preroll.instruments.ablation import change as changes
from preroll.instruments.ablation.change import Applied, Change
from preroll.instruments.ablation.files import open_files
from preroll.instruments.ablation.raw import Arm
from preroll.instruments.ablation.reads import Reads, reads_of, tree_of
from preroll.instruments.starts_launch import Command, Holders, Launch
from preroll.instruments.starts_ready import Answers, parse_ready
from preroll.instruments.starts_stage import free_port

LOOK_S = 0.02
# How long after readiness the health check may take to pass.
HEALTH_S = 30.0
NOT_IMPORTED = (
    "{change}: no Python of this command imported it, so there is nothing to take away (or the "
    "command ignores PYTHONPATH: -I, -E and -S do)"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What both arms run. `ready`, `health`: as given on the command line; `{port}` is filled in
    anew for each run."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    change: Change
    ready: str | None = None
    health: str | None = None
    timeout_s: float = 3600.0
    marks: tuple[Mark, ...] = ()
    pty: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that got ready: its start, its lines, what its tree read until then.

    `seen`: files that were open or mapped, where that was asked for.
    """

    start: Start
    lines: Sequence[Line]
    reads: Reads
    seen: set[str] = field(default_factory=set)


class Launcher(Holders):
    """Runs either arm."""

    def __init__(self, root: Path, subject: Subject) -> None:
        super().__init__(root)
        self.subject = subject
        self._count = 0

    async def _end_all(self) -> None:
        await super()._end_all()
        self._count = len(list((self._root / "holders").glob("*")))

    async def run(self, arm: Arm, *, is_watched: bool = False) -> Ran:
        """Raises UnavailableError when it does not get ready, InputError when the change changes
        nothing."""
        self._count += 1
        name = f"{arm}-{self._count}"
        folder = self._root / "runs" / name
        applied = self.applied(arm, folder)
        port = free_port() if "{port}" in self._words(applied) else None
        command = self._command(applied, folder, port)
        health = None if self.subject.health is None else _health(self.subject.health, port)
        launch = Watched(command, self._backend, name, health, is_watched)
        start = await launch.start()
        if arm is Arm.VARIANT and not changes.was_stubbed(applied):
            raise InputError(NOT_IMPORTED.format(change=self.subject.change))
        return Ran(start, launch.lines, launch.reads, launch.seen)

    def applied(self, arm: Arm, folder: Path) -> Applied:
        """The command of an arm; what a stub needs is put into `folder`, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        subject = self.subject
        if arm is Arm.CONTROL:
            return changes.control(subject.argv, subject.env)
        return changes.variant(subject.change, subject.argv, subject.env, folder)

    def _words(self, applied: Applied) -> str:
        return " ".join((*applied.argv, self.subject.ready or "", self.subject.health or ""))

    def _command(self, applied: Applied, folder: Path, port: int | None) -> Command:
        subject = self.subject
        return Command(
            argv=tuple(
                word.replace("{port}", str(port)).replace("{socket}", f"{folder}/s")
                for word in applied.argv
            ),
            env=dict(applied.env),
            cwd=subject.cwd,
            ready=parse_ready(subject.ready, port),
            timeout_s=subject.timeout_s,
            marks=subject.marks,
            pty=subject.pty,
        )


def _health(text: str, port: int | None) -> Answers:
    found = parse_ready(text, port)
    if not isinstance(found, Answers):
        raise InputError(f"--health {text!r}: allowed: http://HOST:PORT/PATH or https://…")
    return found


class Watched(Launch):
    """A launch that notes what its tree has read by the time it is ready, and asks its health."""

    def __init__(
        self,
        command: Command,
        backend: LocalBackend,
        name: str,
        health: Answers | None,
        is_watched: bool,
    ) -> None:
        super().__init__(command, backend, name)
        self._health = health
        self._is_watched = is_watched
        self.reads = Reads(0, 0)
        self.lines: list[Line] = []
        self.seen: set[str] = set()

    async def _until_ready(self, status: ProcessStatus) -> Start:
        looking = asyncio.create_task(self._look(status.owner_pid)) if self._is_watched else None
        try:
            return await super()._until_ready(status)
        finally:
            if looking is not None:
                looking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await looking

    async def _look(self, holder_pid: int) -> None:
        while True:
            self.seen |= open_files(tree_of(holder_pid)[1:])
            await asyncio.sleep(LOOK_S)

    async def _bill(self, status: ProcessStatus, ready_ns: int, done_ns: int) -> Start:
        tree = tree_of(status.owner_pid)
        self.reads = reads_of(tree)
        if self._is_watched:
            self.seen |= open_files(tree[1:])
        if self._health is not None:
            await self._until_healthy(self._health, status)
        kept = self._backend.lines(self._name)
        self.lines = [Line(line.t_ns, line.text) async for line in kept]
        return await super()._bill(status, ready_ns, done_ns)

    async def _until_healthy(self, health: Answers, status: ProcessStatus) -> None:
        """The health check must pass while the tree lives; its time is no part of the start."""
        asked = asyncio.ensure_future(health(self._backend.lines(self._name)))
        ended = asyncio.ensure_future(self._backend.wait(status.id))
        try:
            await asyncio.wait(
                (asked, ended), timeout=HEALTH_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not asked.done():
                how = "it ended" if ended.done() else f"within {HEALTH_S:g} s"
                raise UnavailableError(f"ready, but its health check did not pass: {how}")
        finally:
            for task in (asked, ended):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, PrerollError):
                    await task
