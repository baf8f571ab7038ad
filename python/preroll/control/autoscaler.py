"""From the door's counters to a number of replicas: observe, ask the policy, keep to the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from preroll.control.idle import IdleTracker
from preroll.control.schedule import Prewarm
from preroll.core import Decision, Observation, Policy, ScaleParameters

TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """Replicas of one stage; `ready_s`: when the newest ready one became so (0 when none is)."""

    num_ready: int
    num_starting: int
    ready_s: float = 0.0


@dataclass(slots=True)
class StageScaler:
    """Scales one stage. `policy` decides; the app file's bounds and schedules hold regardless."""

    parameters: ScaleParameters
    policy: Policy
    start_s: float | None = None
    last: Decision | None = None
    _idle: IdleTracker = field(default_factory=IdleTracker)
    _prewarm: Prewarm = field(init=False)
    _before: tuple[float, int, float] | None = None

    def __post_init__(self) -> None:
        self._prewarm = Prewarm(self.parameters.prewarm)

    def observe(
        self,
        state: Mapping[str, Any],
        counts: ReplicaCounts,
        now_s: float,
        wall_s: float,
        asked_s: float | None = None,
    ) -> Observation:
        """One stage of the door's `GET /state` as the policy's view.

        `asked_s` and `now_s`: monotonic times at which the state was asked for and had come. The
        longest time that can lie between two states is taken for the one that does: an answer
        that is late by a millisecond must not look like demand for one more replica.
        """
        in_flight, queued = int(state["in_flight"]), int(state["queued"])
        arrivals = int(state["arrivals_total"])
        integral_s = float(state["concurrency_ns"]) / 1e9
        since = self._before
        self._before = (now_s if asked_s is None else asked_s, arrivals, integral_s)
        concurrency, new = float(in_flight + queued), 0
        # A counter that fell means that the door restarted: this tick has no rate.
        if since and now_s > since[0] and arrivals >= since[1] and integral_s >= since[2]:
            concurrency = (integral_s - since[2]) / (now_s - since[0])
            new = arrivals - since[1]
        idle_s = self._idle.update(
            now_s,
            busy=in_flight + queued,
            arrivals=arrivals,
            last_activity_s=float(state["last_activity_ns"] or 0) / 1e9,
            ready_s=counts.ready_s,
        )
        return Observation(
            now_s=now_s,
            wall_s=wall_s,
            num_ready=counts.num_ready,
            num_starting=counts.num_starting,
            in_flight=in_flight,
            queued=queued,
            arrivals=new,
            concurrency=concurrency,
            idle_s=idle_s,
            gaps_s=tuple(self._idle.gaps_s),
            start_s=self.start_s,
        )

    def decide(self, observation: Observation) -> Decision:
        """The policy's decision, raised by a schedule that is on, within `min` and `max`."""
        low, high = self.parameters.min_replicas, self.parameters.max_replicas
        if low == high:
            self.last = Decision(low, "the app file")
            return self.last
        decision = self.policy.decide(observation, self.parameters)
        scheduled = self._prewarm.active(observation.wall_s)
        if scheduled and decision.replicas < 1:
            decision = Decision(1, f"prewarm {scheduled}")
        if not low <= decision.replicas <= high:
            bounded = min(high, max(low, decision.replicas))
            decision = Decision(bounded, f"{decision.reason}; bounds {low} to {high}")
        self.last = decision
        return decision

    def demand(self, wanted: int) -> Decision:
        """A request is held and nothing is ready: at least one replica, now."""
        count = min(max(wanted, 1), self.parameters.max_replicas)
        self.last = Decision(count, "a request waits and nothing is ready")
        return self.last
