"""Facts about processes from /proc, and ending what is left of a tree whose owner is dead."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

KILL_TIMEOUT_S = 10.0
"""A process in uninterruptible sleep does not end before its system call does."""
MARK_ID = b"PREROLL_HOLDER="
MARK_DIR = b"PREROLL_HOLDER_DIR="


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """From /proc/PID/stat: `start_ticks` since boot names a process for good with its pid."""

    pid: int
    parent: int
    session: int
    is_zombie: bool
    start_ticks: int


def facts_of(pid: int) -> ProcessFacts | None:
    """None when there is no such process (any more)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, field 2, may hold spaces and parentheses: fields count from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessFacts(pid, int(fields[1]), int(fields[3]), fields[0] == b"Z", int(fields[19]))


def is_alive(pid: int, start_ticks: int) -> bool:
    """Whether this very process lives: neither ended, nor a zombie, nor its pid used anew."""
    facts = facts_of(pid)
    return facts is not None and facts.start_ticks == start_ticks and not facts.is_zombie


def all_processes() -> Iterator[ProcessFacts]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (facts := facts_of(int(entry.name))):
            yield facts


@dataclass(frozen=True, slots=True)
class Tree:
    """How the processes of a dead holder are recognised.

    By the holder's marks in their environment; by its control groups; and, as a program may
    overwrite its environment with a title, by the session of the direct child `pid`.
    """

    id: str
    folder: Path
    pid: int | None
    pid_start_ticks: int | None
    groups: tuple[Path, ...] = ()

    def members(self) -> list[ProcessFacts]:
        grouped = set(self._grouped())
        return [
            facts
            for facts in all_processes()
            if not facts.is_zombie and (facts.pid in grouped or self._owns(facts))
        ]

    def _owns(self, facts: ProcessFacts) -> bool:
        is_in_session = (
            self.pid is not None
            and facts.session == self.pid
            and facts.start_ticks >= (self.pid_start_ticks or 0)
        )
        return is_in_session or has_marks(facts.pid, self.id, self.folder)

    def _grouped(self) -> Iterator[int]:
        for group in self.groups:
            with contextlib.suppress(OSError):
                yield from map(int, (group / "cgroup.procs").read_text().split())


def has_marks(pid: int, holder_id: str, folder: Path) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    wanted = {MARK_ID + holder_id.encode(), MARK_DIR + os.fsencode(folder)}
    return wanted <= set(environment)


def end_tree(tree: Tree, timeout_s: float = KILL_TIMEOUT_S) -> int:
    """Kills what is left of a tree and removes its control groups; returns how many it killed.

    Raises TimeoutError with the pids of what did not end in time.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while members := tree.members():
        if time.monotonic() > deadline:
            raise TimeoutError(f"still alive: {sorted(facts.pid for facts in members)}")
        for group in tree.groups:
            with contextlib.suppress(OSError):
                (group / "cgroup.kill").write_text("1")
        killed |= {facts.pid for facts in members if _kill(facts)}
        time.sleep(0.002)
    for group in tree.groups:
        _remove_group(group, deadline)
    return len(killed)


def _remove_group(group: Path, deadline: float) -> None:
    """A group stays busy for a moment after its last process has ended."""
    while group.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.002)


def _kill(facts: ProcessFacts) -> bool:
    """By pidfd and with a second look, so that a pid used anew is not hit."""
    try:
        pidfd = os.pidfd_open(facts.pid)
    except OSError:
        return False
    try:
        if is_alive(facts.pid, facts.start_ticks):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(pidfd)


def tree_of(status: Mapping[str, object], holder_id: str, folder: Path) -> Tree:
    """The tree that a dead holder's last status tells of."""
    pid, ticks, groups = status.get("pid"), status.get("pid_start_ticks"), status.get("cgroups")
    names: Collection[object] = groups if isinstance(groups, list) else ()
    return Tree(
        holder_id,
        folder,
        pid if isinstance(pid, int) else None,
        ticks if isinstance(ticks, int) else None,
        tuple(Path(name) for name in names if isinstance(name, str)),
    )
