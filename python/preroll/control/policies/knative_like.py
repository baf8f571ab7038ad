"""A re-implementation of the rules of Knative's Pod Autoscaler at its documented defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from preroll.control.policies.base import MeanWindow, bounded, replicas_for
from preroll.core import Decision, Observation, ScaleParameters

STABLE_WINDOW_S = 60.0
PANIC_WINDOW_S = 6.0  # panic-window-percentage 10
PANIC_THRESHOLD = 2.0  # panic-threshold-percentage 200
MAX_UP_RATE, MAX_DOWN_RATE = 1000.0, 2.0
DEFAULT_TARGET = 70.0  # container-concurrency-target-default 100 at 70 %
GRACE_S = 30.0  # scale-to-zero-grace-period


@dataclass(slots=True)
class KnativeLike:
    """Like Knative's KPA, not Knative: stable and panic windows over average concurrency.

    Source: Knative documentation, "Additional autoscaling configuration for Knative Pod
    Autoscaler" and the `config-autoscaler` ConfigMap. As documented, the panic test divides by
    ready pods only, and a scale-down may halve the pods at every tick.
    """

    name: ClassVar[str] = "knative-like"
    _stable: MeanWindow = field(default_factory=lambda: MeanWindow(STABLE_WINDOW_S))
    _panic: MeanWindow = field(default_factory=lambda: MeanWindow(PANIC_WINDOW_S))
    _panic_since_s: float | None = None
    _panic_pods: int = 0
    _zero_since_s: float | None = None

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
        now_s = observation.now_s
        target = parameters.target_concurrency or DEFAULT_TARGET
        load = max(observation.concurrency, 0.0)
        ready = max(observation.num_ready, 1)
        stable = self._limited(self._stable.put(now_s, load), target, ready)
        panic = self._limited(self._panic.put(now_s, load), target, ready)
        wanted, why = self._by_mode(now_s, stable, panic, ready)
        return bounded(self._zero(now_s, wanted, observation), why, parameters)

    def _limited(self, concurrency: float, target: float, ready: int) -> int:
        wanted = replicas_for(concurrency, target)
        low = math.floor(ready / MAX_DOWN_RATE)
        return min(max(wanted, low), math.ceil(ready * MAX_UP_RATE))

    def _by_mode(self, now_s: float, stable: int, panic: int, ready: int) -> tuple[int, str]:
        if panic / ready >= PANIC_THRESHOLD:
            self._panic_since_s = now_s
        elif self._panic_since_s is not None and now_s - self._panic_since_s > STABLE_WINDOW_S:
            self._panic_since_s, self._panic_pods = None, 0
        if self._panic_since_s is None:
            return stable, "stable"
        self._panic_pods = max(self._panic_pods, panic, stable)
        return self._panic_pods, "panic"

    def _zero(self, now_s: float, wanted: int, observation: Observation) -> int:
        if wanted > 0:
            self._zero_since_s = None
            return wanted
        if self._zero_since_s is None:
            self._zero_since_s = now_s
        # averages fall to exactly zero only when the whole stable window saw no request
        have = observation.num_ready + observation.num_starting
        return 0 if now_s - self._zero_since_s >= GRACE_S else min(have, 1)
