"""The nouns of Preroll. Everything imports this module; it imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class ReplicaState(StrEnum):
    """States of a replica in the order of a start; `asleep` is standby, the last two end it."""

    PLACED = "placed"
    FETCHING = "fetching"
    BOOTING = "booting"
    LOADING = "loading"
    COMPILING = "compiling"
    WARMING = "warming"
    READY = "ready"
    ASLEEP = "asleep"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


class Wait(StrEnum):
    """The seven waits that every start is billed to, in the order in which they happen."""

    NODE = "node"
    IMAGE = "image"
    INIT = "init"
    FETCH = "fetch"
    LOAD = "load"
    COMPILE = "compile"
    WARM = "warm"


class Preparedness(StrEnum):
    """How much of a start's state was already in place."""

    NEW_NODE = "new_node"
    WARM_NODE = "warm_node"
    LOCAL_WEIGHTS = "local_weights"
    RESIDENT = "resident"


@dataclass(frozen=True, slots=True)
class Phase:
    """One interval of a start. Times: CLOCK_MONOTONIC ns; `label`: what the engine said."""

    wait: Wait
    label: str
    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest silence within a start: no output from the process. `after`: its last line."""

    start_ns: int
    end_ns: int
    after: str

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one replica, spawn to ready; its phases are contiguous and sum to the total.

    `is_forked`: by a fork server, which had done the imports.
    """

    replica: str
    stage: str
    spawned_ns: int
    ready_ns: int
    phases: tuple[Phase, ...]
    preparedness: Preparedness = Preparedness.LOCAL_WEIGHTS
    gap: Gap | None = None
    is_forked: bool = False

    @property
    def total_s(self) -> float:
        return (self.ready_ns - self.spawned_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Resources:
    """What a replica may use: `gpus` is a count, memory is in bytes, None is no limit."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    gpu_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets in seconds; None is no target. `pace_s`: no two frames further apart."""

    ttft_p95_s: float | None = None
    itl_p95_s: float | None = None
    pace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What a scaling policy sees of one stage at one control tick.

    Times are seconds on one monotonic clock (`now_s`), except `wall_s`, seconds since the epoch
    (for schedules). Counts are of replicas or requests. `concurrency` is the time-average of
    in-flight plus queued requests since the last tick. `gaps_s` are the most recent idle gaps
    between the end of all work and the next arrival, oldest first. `start_s` is the measured cost
    of a start (p50), None before the first measurement.
    """

    now_s: float
    wall_s: float
    num_ready: int
    num_starting: int
    in_flight: int
    queued: int
    arrivals: int
    concurrency: float
    idle_s: float
    gaps_s: tuple[float, ...] = ()
    start_s: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """How many replicas a stage should have (ready and starting together), and why."""

    replicas: int
    reason: str


class Policy(Protocol):
    """A scaling policy: a pure function of observation and parameters.

    The same object runs in `preroll serve` and in `preroll simulate`. A policy may keep state
    inside the object; it must never read a clock, a file or a random source.
    """

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision: ...


@dataclass(frozen=True, slots=True)
class ScaleParameters:
    """The `scale` table of a stage; `idle_timeout_s` None is `auto`, the measured start cost."""

    min_replicas: int = 1
    max_replicas: int = 1
    target_concurrency: float | None = None
    idle_timeout_s: float | None = None
    prewarm: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a measurement depends on. Two measurements compare only when these agree."""

    device: str
    driver: str
    engine: str
    engine_version: str
    args: tuple[str, ...]
    weights_digest: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured value with its interval, raw samples (in `unit`), date and fingerprint."""

    stage: str
    kind: str
    value: float
    unit: str
    low: float | None
    high: float | None
    samples: tuple[float, ...]
    date: str
    fingerprint: Fingerprint
    extra: dict[str, float] = field(default_factory=dict)
