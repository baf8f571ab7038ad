"""The contract of a backend: how long-lived processes are started, found again and ended.

A process is known by its id. It outlives whoever started it: a backend made anew over the same
state finds it with `adopt`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from preroll.errors import PrerollError


class HolderRefusedError(PrerollError):
    """The owner of a process answered that it cannot do what was asked; it says why."""


class ProcessState(StrEnum):
    """`restarting`: between two runs of a process that has a restart policy."""

    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    EXITED = "exited"


class Stdio(StrEnum):
    PIPES = "pipes"
    PTY = "pty"


class Orphans(StrEnum):
    """What becomes of processes that the direct child leaves behind: ended, or waited for.

    `FREE`: they never belong to it: a fork server's children have owners of their own.
    """

    KILL = "kill"
    WAIT = "wait"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Limits:
    """`memory_bytes` bounds the tree's memory, `cpus` its processors, `nice` its priority."""

    memory_bytes: int | None = None
    cpus: tuple[int, ...] | None = None
    nice: int | None = None


@dataclass(frozen=True, slots=True)
class Listen:
    """A socket that outlives the process: `address` is tcp:HOST:PORT or unix:/path."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again when it ends by itself, after a wait that doubles from `min_s` to `max_s`."""

    min_s: float = 0.05
    max_s: float = 5.0


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run. `env` is the whole environment; `id`: letters, digits, `-`, `_` and `.`.

    Lines are stamped as they come while there are up to 25 a second, and to 20 ms under longer
    chatter; `exact_stamps` stamps each as it comes for more processor time.
    """

    id: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path = Path("/")
    stdio: Stdio = Stdio.PIPES
    listen: tuple[Listen, ...] = ()
    limits: Limits = Limits()
    tail_lines: int = 1000
    log_bytes: int = 16 << 20
    log_files: int = 4
    restart: Restart | None = None
    stop_signal: int = 15
    grace_s: float = 10.0
    orphans: Orphans = Orphans.KILL
    exact_stamps: bool = False


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: exactly one of the two is set."""

    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process tree uses now; `rss_bytes` counts shared pages once per process."""

    processes: int
    rss_bytes: int
    cpu_ns: int


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process as its owner sees it. Times: CLOCK_MONOTONIC ns of the boot `boot_id`.

    `listen`: the sockets that outlive it; a port that was 0 is the one that the kernel gave.
    `error` says what went wrong beside the exit (it could not be executed, processes were left
    behind); `limits_applied` says by what each limit is enforced, or `none: reason`.
    """

    id: str
    state: ProcessState
    pid: int | None
    boot_id: str
    owner_pid: int
    generation: int = 1
    restarts: int = 0
    spawned_ns: int | None = None
    exited_ns: int | None = None
    exit: Exit | None = None
    lines: int = 0
    last_line_ns: int | None = None
    listen: tuple[Listen, ...] = ()
    limits_applied: Mapping[str, str] = field(default_factory=dict)
    oom_kills: int = 0
    is_forked: bool = False
    log_dropped_lines: int = 0
    log_error: str | None = None
    usage: Usage | None = None
    error: str | None = None

    @property
    def has_exited(self) -> bool:
        return self.state is ProcessState.EXITED


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output, stamped when it was read (CLOCK_MONOTONIC ns).

    `n` counts from 1 over all streams; `partial`: a later line continues this one.
    """

    n: int
    t_ns: int
    stream: str
    text: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process tree without its owner: `num_killed` processes of it were ended."""

    id: str
    num_killed: int
    reason: str


@dataclass(frozen=True, slots=True)
class Adoption:
    """What an earlier owner of the state left.

    `running` and `exited` answer to their ids from now on (`exited` still holds its lines);
    `ended` only left its last status; `leftovers` have been ended; `unusable` maps the id of
    what answers but cannot be used, or lives and does not answer, to the reason.
    """

    running: tuple[ProcessStatus, ...] = ()
    exited: tuple[ProcessStatus, ...] = ()
    ended: tuple[ProcessStatus, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """Starts, finds, follows and ends processes.

    Every method but `lines` and `wait` answers within a time-out. All raise UnavailableError when
    the process's owner does not answer, HolderRefusedError when it says no.
    """

    async def start(self, spec: ProcessSpec) -> ProcessStatus:
        """Starts a process and its owner. Raises InputError when the spec cannot be carried out.

        A program that cannot be executed is no error here: its status has exited, with `error`.
        """

    async def fork(self, spec: ProcessSpec, server: Path) -> ProcessStatus:
        """As `start`, by the fork server that listens at `server`: the process is its fork, and
        belongs to an owner of its own as any other. Raises UnavailableError when the server does
        not answer, HolderRefusedError when it may not fork."""

    async def adopt(self) -> Adoption:
        """Finds what runs, ends what is without an owner; asks all at the same time."""

    async def list(self) -> tuple[ProcessStatus, ...]:
        """All whose owner answers."""

    async def status(self, process_id: str) -> ProcessStatus: ...

    def lines(
        self, process_id: str, since: int = 0, *, follow: bool = False
    ) -> AsyncIterator[Line]:
        """Lines with `n` > `since` that are still kept, oldest first.

        With `follow` it goes on until the process has ended. A reader that is too slow for the
        process misses lines: their numbers are absent.
        """

    async def wait(self, process_id: str) -> ProcessStatus:
        """Returns once nothing of the process's tree is left, however long that takes."""

    async def signal(self, process_id: str, signal: int) -> None:
        """Sends a signal to the direct child."""

    async def stop(self, process_id: str, grace_s: float | None = None) -> ProcessStatus:
        """Stop signal, then the whole tree is killed after the grace; returns when it is gone."""

    async def kill(self, process_id: str) -> ProcessStatus:
        """Ends the whole tree now; returns when it is gone."""

    async def release(self, process_id: str) -> None:
        """Lets the owner of an exited process go; log and last status stay."""

    async def upgrade(
        self, process_id: str, argv: tuple[str, ...], env: Mapping[str, str] | None = None
    ) -> int:
        """Starts a second generation on the same listening sockets; returns its pid."""

    async def retire(self, process_id: str) -> int:
        """Asks the older generation to end; returns its pid."""
