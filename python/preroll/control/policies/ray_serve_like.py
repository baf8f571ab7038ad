"""A re-implementation of the rules of Ray Serve's autoscaler at its documented defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from preroll.control.policies.base import MeanWindow, bounded, in_system
from preroll.core import Decision, Observation, ScaleParameters

DEFAULT_TARGET = 2.0  # target_ongoing_requests
LOOK_BACK_S = 30.0
UPSCALE_DELAY_S = 30.0
DOWNSCALE_DELAY_S = 600.0


@dataclass(slots=True)
class RayServeLike:
    """Like Ray Serve's autoscaler, not Ray: a ratio to the target, acted on after a delay.

    Source: Ray documentation, "Advanced Ray Serve Autoscaling" and `AutoscalingConfig` (2.60):
    look_back_period_s 30, upscale_delay_s 30, downscale_delay_s 600, factors 1. From zero, any
    request starts one replica at once.
    """

    name: ClassVar[str] = "ray-serve-like"
    _ongoing: MeanWindow = field(default_factory=lambda: MeanWindow(LOOK_BACK_S))
    _above_since_s: float | None = None
    _below_since_s: float | None = None

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
        target = parameters.target_concurrency or DEFAULT_TARGET
        ongoing = self._ongoing.put(observation.now_s, observation.concurrency)
        have = observation.num_ready + observation.num_starting
        if have == 0:
            wanted = 1 if in_system(observation) or observation.arrivals else 0
            return bounded(wanted, "from zero", parameters)
        # have x (ongoing / have) / target; rounding up keeps the last replica until traffic is nil
        wanted = min(math.ceil(round(ongoing / target, 9)), parameters.max_replicas)
        return bounded(
            self._delayed(observation.now_s, wanted, have), "ongoing requests", parameters
        )

    def _delayed(self, now_s: float, wanted: int, have: int) -> int:
        if wanted <= have:
            self._above_since_s = None
        if wanted >= have:
            self._below_since_s = None
        if wanted > have:
            self._above_since_s = now_s if self._above_since_s is None else self._above_since_s
            due = now_s - self._above_since_s >= UPSCALE_DELAY_S
        elif wanted < have:
            self._below_since_s = now_s if self._below_since_s is None else self._below_since_s
            due = now_s - self._below_since_s >= DOWNSCALE_DELAY_S
        else:
            due = False
        return wanted if due else have
