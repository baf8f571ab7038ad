"""What one stage's replicas do next: a state machine without a process, a socket or a clock.

Every method takes the monotonic time in seconds and returns the actions to carry out; what happened
since is reported back by calling the next method. Restarts back off exponentially; a crash loop
opens a circuit, which shows the engine's last words and tries one replica at a time, ever rarer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from preroll.core import ReplicaState

STARTING = (
    ReplicaState.PLACED,
    ReplicaState.FETCHING,
    ReplicaState.BOOTING,
    ReplicaState.LOADING,
    ReplicaState.COMPILING,
    ReplicaState.WARMING,
)
BLOCKED_RETRY_S = 2.0
"""A start that could not even begin (a full disk, no free device) is tried again this soon: that
is no fault of the engine, and what blocks it may pass at any moment."""
_ORDER = {state: rank for rank, state in enumerate(ReplicaState)}


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Delays in seconds. A replica that was ready for `stable_s` is not part of a crash loop."""

    first_delay_s: float = 0.1
    max_delay_s: float = 15.0
    open_after: int = 5
    open_s: float = 60.0
    max_open_s: float = 600.0
    stable_s: float = 30.0

    def delay_s(self, failures: int) -> float:
        """Time to wait after `failures` (at least 1) failures in a row."""
        if failures < self.open_after:
            return float(min(self.first_delay_s * 2.0 ** (failures - 1), self.max_delay_s))
        return float(min(self.open_s * 2.0 ** (failures - self.open_after), self.max_open_s))


@dataclass(slots=True)
class Replica:
    """One replica as control sees it. Times are monotonic seconds."""

    id: str
    ordinal: int
    digest: str
    state: ReplicaState
    since_s: float
    spawned_s: float | None = None
    ready_s: float | None = None
    was_condemned: bool = False

    @property
    def is_starting(self) -> bool:
        return self.state in STARTING

    @property
    def is_live(self) -> bool:
        """Starting or ready: it counts towards what is wanted."""
        return self.is_starting or self.state is ReplicaState.READY


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this replica; report `advance`, then `exited` once, whatever happens."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Drain:
    """Give this replica no new request, let the running ones end, then stop it; report `exited`."""

    replica: Replica
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End this replica's whole tree now; report `exited`."""

    replica: Replica
    reason: str


Action = Launch | Drain | Kill
Record = Callable[[str, str | None, dict[str, Any]], None]


def _ignore(kind: str, replica: str | None, data: dict[str, Any]) -> None:
    pass


@dataclass(slots=True)
class StageSupervisor:
    """Brings the replicas of `stage` to the wanted number of the wanted spec (`digest`).

    `new_suffix` names a start; `record(kind, replica, data)` gets each transition as it happens.
    """

    stage: str
    digest: str
    new_suffix: Callable[[], str]
    policy: RestartPolicy = RestartPolicy()
    record: Record = _ignore
    wanted: int = 0
    reason: str = "not asked yet"
    failures: int = 0
    retry_s: float = 0.0
    last_failure: str | None = None
    replicas: dict[str, Replica] = field(default_factory=dict)
    is_open: bool = False
    is_blocked: bool = False

    # What the executor asks ----------------------------------------------------------------

    def live(self) -> list[Replica]:
        return [r for r in self.replicas.values() if r.is_live]

    def ready(self) -> list[Replica]:
        return [r for r in self.replicas.values() if r.state is ReplicaState.READY]

    def wake_s(self) -> float | None:
        """When `tick` would do something by itself; None: not before something happens."""
        is_waiting = self.failures or self.is_blocked
        return self.retry_s if self._missing() > 0 and is_waiting else None

    # What the executor tells ---------------------------------------------------------------

    def want(self, replicas: int, reason: str, now_s: float) -> list[Action]:
        """Sets how many replicas there should be, starting and ready together."""
        if replicas != self.wanted:
            self.record("wanted", None, {"replicas": replicas, "reason": reason})
        self.wanted, self.reason = replicas, reason
        return self._reconcile(now_s)

    def adopt(self, replica: Replica) -> None:
        """Takes over a replica that an earlier control started. Call before the first `want`."""
        self.replicas[replica.id] = replica
        self.record("adopted", replica.id, {"state": replica.state, "digest": replica.digest})

    def advance(self, replica_id: str, state: ReplicaState, now_s: float) -> list[Action]:
        """A replica went on to a later state of its start; an earlier one is ignored."""
        replica = self.replicas.get(replica_id)
        if replica is None or not replica.is_starting or _ORDER[state] <= _ORDER[replica.state]:
            return []
        if replica.state is ReplicaState.PLACED:
            replica.spawned_s = now_s
            self.is_blocked = False
        self._move(replica, state, now_s)
        if state is ReplicaState.READY:
            replica.ready_s = now_s
            if self.is_open:
                self.is_open = False
                self.record("circuit_closed", replica_id, {})
        return self._reconcile(now_s)

    def exited(self, replica_id: str, cause: str, now_s: float) -> list[Action]:
        """A replica's process tree is gone; `cause` ends with the engine's own last words."""
        replica = self.replicas.pop(replica_id, None)
        if replica is None:
            return []
        if replica.was_condemned:
            self._move(replica, ReplicaState.FAILED, now_s, cause=self.last_failure or cause)
        elif replica.state is ReplicaState.DRAINING:
            self._move(replica, ReplicaState.STOPPED, now_s)
        else:
            self._move(replica, ReplicaState.FAILED, now_s, cause=cause)
            self._count_failure(replica, cause, now_s)
        return self._reconcile(now_s)

    def blocked(self, replica_id: str, cause: str, now_s: float) -> list[Action]:
        """A start could not even begin, through no fault of the engine: tried again before long."""
        replica = self.replicas.pop(replica_id, None)
        if replica is None:
            return []
        self._move(replica, ReplicaState.FAILED, now_s, cause=cause)
        self.last_failure, self.is_blocked = cause, True
        self.retry_s = max(self.retry_s, now_s + BLOCKED_RETRY_S)
        return self._reconcile(now_s)

    def condemn(self, replica_id: str, cause: str, now_s: float) -> list[Action]:
        """A replica that runs but does not serve (health, warm-up): killed, counted as a crash."""
        replica = self.replicas.get(replica_id)
        if replica is None or not replica.is_live:
            return []
        was_ready = replica.state is ReplicaState.READY
        replica.was_condemned = True
        self._move(replica, ReplicaState.DRAINING, now_s, cause=cause)
        self._count_failure(replica, cause, now_s, was_ready=was_ready)
        return [Kill(replica, cause), *self._reconcile(now_s)]

    def tick(self, now_s: float) -> list[Action]:
        return self._reconcile(now_s)

    # Decisions -----------------------------------------------------------------------------

    def _missing(self) -> int:
        return self.wanted - sum(r.digest == self.digest for r in self.live())

    def _reconcile(self, now_s: float) -> list[Action]:
        current = [r for r in self.live() if r.digest == self.digest]
        older = [r for r in self.live() if r.digest != self.digest]
        actions: list[Action] = []
        surplus = len(current) - self.wanted
        if surplus > 0:
            actions += self._drain(_least_useful(current)[:surplus], self.reason, now_s)
        elif now_s >= self.retry_s:
            starting = sum(r.is_starting for r in current)
            # One at a time while failing, and while an older spec is replaced (memory for both).
            is_careful = self.failures or self.is_blocked or older
            room = max(0, 1 - starting) if is_careful else -surplus
            actions += [self._launch(now_s) for _ in range(min(-surplus, room))]
        num_ready = sum(r.state is ReplicaState.READY for r in current)
        excess = len(older) - max(0, self.wanted - num_ready)
        if excess > 0:
            actions += self._drain(_least_useful(older)[:excess], "its spec was replaced", now_s)
        return actions

    def _launch(self, now_s: float) -> Launch:
        taken = {r.ordinal for r in self.replicas.values()}
        ordinal = next(n for n in range(1, len(taken) + 2) if n not in taken)
        replica_id = f"{self.stage}-{ordinal}-{self.new_suffix()}"
        replica = Replica(replica_id, ordinal, self.digest, ReplicaState.PLACED, now_s)
        self.replicas[replica_id] = replica
        self.record("state", replica_id, {"to": ReplicaState.PLACED, "reason": self.reason})
        return Launch(replica)

    def _drain(self, replicas: Iterable[Replica], reason: str, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for replica in replicas:
            self._move(replica, ReplicaState.DRAINING, now_s, reason=reason)
            actions.append(Drain(replica, reason))
        return actions

    def _count_failure(
        self, replica: Replica, cause: str, now_s: float, was_ready: bool = True
    ) -> None:
        is_stable = (
            was_ready
            and replica.ready_s is not None
            and now_s - replica.ready_s >= self.policy.stable_s
        )
        self.failures = 1 if is_stable else self.failures + 1
        self.last_failure = cause
        self.retry_s = now_s + self.policy.delay_s(self.failures)
        if self.failures >= self.policy.open_after:
            self.is_open = True
            retry_in_s = round(self.retry_s - now_s, 3)
            data = {"failures": self.failures, "retry_in_s": retry_in_s, "cause": cause}
            self.record("circuit_open", replica.id, data)

    def _move(self, replica: Replica, state: ReplicaState, now_s: float, **data: str) -> None:
        was = replica.state
        replica.state, replica.since_s = state, now_s
        self.record("state", replica.id, {"from": was, "to": state, **data})


def _least_useful(replicas: list[Replica]) -> list[Replica]:
    """Starting ones first (a ready one is worth its start), then the youngest."""
    return sorted(replicas, key=lambda r: (not r.is_starting, -r.since_s))
