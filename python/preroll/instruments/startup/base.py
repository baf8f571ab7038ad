"""What a profile of a start is: every nanosecond from spawn to ready under one cause.

All of it is seen from outside, except `imports`, which a hook records in Python processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Cause(StrEnum):
    """Why time passed on the critical chain; the order is the order of reports."""

    CPU = "cpu"
    RUN_QUEUE = "run_queue"
    STOLEN = "stolen"
    READ = "read"
    FAULT_IO = "fault_io"
    DISK = "disk"
    NETWORK = "network"
    CHILD = "child"
    LOCK = "lock"
    SLEEP = "sleep"
    DEVICE = "device"
    PIPE = "pipe"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """How the profiled run ended. Everything but `ready` is a partial profile.

    `ready` includes a command that ended with status 0 where no other readiness was asked for.
    """

    READY = "ready"
    ENDED = "ended"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"


class Function(NamedTuple):
    """A Python function (or a module's body), where its source begins."""

    name: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Slice:
    """One piece of the partition. `file`: what was read or faulted on; `module`: the Python module
    that was being loaded by this thread, or by the one that waits for it; `stack`: the functions
    that it was sampled in, innermost first; times as the holder's."""

    start_ns: int
    end_ns: int
    cause: Cause
    tid: int
    pid: int
    depth: int = 0
    file: str | None = None
    cold_bytes: int = 0
    module: str | None = None
    stack: tuple[Function, ...] | None = None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the start under one label: what a line said, with what really happened.

    Seconds are since spawn. `lie` says where name and causes disagree. `wait` is one of the
    seven waits when a known engine's line gave the label.
    """

    name: str
    start_s: float
    end_s: float
    causes: Mapping[str, float]
    wait: str | None = None
    lie: str | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class ImportCost:
    """What a Python package costs on the critical chain; seconds of wall time.

    `inclusive_s`: all that was loaded beneath it. `exclusive_s`: what its removal would save.
    `moves_to`: the rest of the inclusive cost, by the next importer, which would pay it instead.
    """

    package: str
    importer: str
    num_modules: int
    inclusive_s: float
    exclusive_s: float
    moves_to: Mapping[str, float]
    cpu_s: float
    major_faults: int
    read_bytes: int
    first_s: float


@dataclass(frozen=True, slots=True)
class FunctionTime:
    """Seconds on a processor in one function, as sampled: by itself, and with what it called."""

    name: str
    file: str
    line: int
    own_s: float
    whole_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest stretch without a line of output; seconds since spawn; `after`: the last line."""

    start_s: float
    end_s: float
    after: str
    causes: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class FileCost:
    """Waiting for one file on the critical chain; `cold_bytes` came from storage."""

    path: str
    seconds: float
    cold_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """One process of the chain, and how long the start waited for it itself."""

    pid: int
    command: str
    start_s: float
    end_s: float
    causes: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Lever:
    """Something to try. `saving_s` is what the profile says it could save; `ablate`: the command
    that tests it, None when no single switch does."""

    title: str
    evidence: str
    saving_s: float
    ablate: str | None


@dataclass(frozen=True, slots=True)
class Profile:
    """One profiled start. `causes` and `segments` each sum to `total_s`.

    `mode`: "tracefs" (kernel tracepoints), "proc" (sampled) or "off" (stamps only); `reason` says
    why that one. `notes`: what a reader must know to trust the rest.
    """

    command: tuple[str, ...]
    outcome: Outcome
    message: str
    mode: str
    reason: str
    total_s: float
    date: str
    causes: Mapping[str, float]
    labels: tuple[Segment, ...]
    imports: Mapping[str, ImportCost] = field(default_factory=dict)
    functions: tuple[FunctionTime, ...] = ()
    gap: Gap | None = None
    files: tuple[FileCost, ...] = ()
    processes: tuple[ProcessTime, ...] = ()
    levers: tuple[Lever, ...] = ()
    notes: tuple[str, ...] = ()
    lines: tuple[tuple[float, str], ...] = ()
    slices: tuple[Slice, ...] = ()
    cpu_s: float | None = None
    spawned_ns: int = 0

    @property
    def segments(self) -> dict[str, float]:
        """Seconds by label; labels of the same name are added up."""
        seconds: dict[str, float] = {}
        for label in self.labels:
            seconds[label.name] = seconds.get(label.name, 0.0) + label.seconds
        return seconds

    @property
    def named_share(self) -> float:
        """The share of the total that has a named cause."""
        unknown = self.causes.get(Cause.UNKNOWN, 0.0)
        return 1.0 - unknown / self.total_s if self.total_s else 1.0
