"""A re-implementation of KEDA with the horizontal pod autoscaler at their documented defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from preroll.control.policies.base import MaxWindow, bounded, in_system, replicas_for
from preroll.core import Decision, Observation, ScaleParameters

POLLING_S = 30.0
COOLDOWN_S = 300.0
HPA_SYNC_S = 15.0
TOLERANCE = 0.1
STABILIZATION_S = 300.0
UP_PODS, UP_FACTOR = 4, 2
DEFAULT_TARGET = 100.0  # the HTTP add-on's targetPendingRequests


@dataclass(slots=True)
class KedaLike:
    """Like KEDA, not KEDA: zero to one by the operator, one to many by the autoscaler.

    Sources: KEDA documentation, "ScaledObject specification" (pollingInterval 30, cooldownPeriod
    300); Kubernetes documentation, "Horizontal Pod Autoscaling" (sync 15 s, tolerance 0.1,
    scale-down stabilization 300 s, scale-up of 100 % or 4 pods per 15 s). As documented, the
    cool-down takes any number of replicas to zero at once.
    """

    name: ClassVar[str] = "keda-like"
    _polled_s: float = float("-inf")
    _synced_s: float = float("-inf")
    _active_s: float | None = None
    _recommended: MaxWindow = field(default_factory=MaxWindow)

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
        now_s = observation.now_s
        have = observation.num_ready + observation.num_starting
        if self._active_s is None:
            self._active_s = now_s
        if now_s - self._polled_s >= POLLING_S:
            self._polled_s = now_s
            if in_system(observation) or observation.arrivals:
                self._active_s = now_s
                if have == 0:
                    return bounded(1, "activated", parameters)
            elif parameters.min_replicas == 0 and now_s - self._active_s >= COOLDOWN_S:
                return bounded(0, f"idle for {COOLDOWN_S:.0f} s", parameters)
        if have == 0 or now_s - self._synced_s < HPA_SYNC_S:
            return bounded(have, "between syncs", parameters)
        self._synced_s = now_s
        return bounded(self._sync(observation, parameters, have), "metric", parameters)

    def _sync(self, observation: Observation, parameters: ScaleParameters, have: int) -> int:
        target = parameters.target_concurrency or DEFAULT_TARGET
        load = observation.concurrency
        inside = abs(load / target / have - 1) <= TOLERANCE
        wanted = have if inside else max(replicas_for(load, target), 1)
        wanted = min(wanted, max(have * UP_FACTOR, have + UP_PODS))
        return (
            self._recommended.put(observation.now_s, wanted, STABILIZATION_S)
            if (wanted < have)
            else self._record(observation.now_s, wanted)
        )

    def _record(self, now_s: float, wanted: int) -> int:
        self._recommended.put(now_s, wanted, STABILIZATION_S)
        return wanted
