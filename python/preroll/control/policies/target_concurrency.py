"""Ours: scale on target concurrency, up at once, down slowly, to zero after an idle time-out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from preroll.control.policies.base import (
    DEFAULT_TARGET,
    MaxWindow,
    bounded,
    demand,
    in_system,
    replicas_for,
    start_s,
)
from preroll.control.schedule import Prewarm
from preroll.core import Decision, Observation, ScaleParameters

MIN_DOWN_DELAY_S = 60.0
MAX_DOWN_DELAY_S = 600.0


@dataclass(slots=True)
class TargetConcurrency:
    """Replicas = demand / target, where replicas that are starting count as replicas.

    Up: in the tick that shows the demand. Down: a level must have been unneeded for as long as a
    start takes (60 to 600 s), then at most a tenth of the replicas, at least one, leave per
    `down_step_s`. The last replica leaves alone, `idle_timeout_s` after the end of all work.
    Subclasses change the idle rule only. Break-even: holding a surplus replica for as long as its
    start takes costs at most twice what knowing the future would have cost.
    """

    name: ClassVar[str] = "target-concurrency"
    down_step_s: float = 15.0
    _needed: MaxWindow = field(default_factory=MaxWindow)
    _last_down_s: float = float("-inf")
    _prewarm_texts: tuple[str, ...] = ()
    _prewarm: Prewarm = field(default_factory=lambda: Prewarm(()))

    def idle_timeout_s(self, observation: Observation, parameters: ScaleParameters) -> float:
        """Seconds without work after which the last replica goes."""
        if parameters.idle_timeout_s is not None:
            return parameters.idle_timeout_s
        return start_s(observation)

    def wanted_while_idle(self, observation: Observation, parameters: ScaleParameters) -> bool:
        """Is one replica wanted although there is no work?"""
        timeout_s = self.idle_timeout_s(observation, parameters)
        held = observation.num_ready + observation.num_starting > 0
        if held and observation.idle_s < timeout_s:
            return True
        return self._prewarmed(observation, parameters)

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
        target = parameters.target_concurrency or DEFAULT_TARGET
        needed = replicas_for(demand(observation), target)
        have = observation.num_ready + observation.num_starting
        delay_s = min(max(start_s(observation), MIN_DOWN_DELAY_S), MAX_DOWN_DELAY_S)
        peak = self._needed.put(observation.now_s, needed, delay_s)
        if needed > have:
            return bounded(needed, f"demand needs {needed}", parameters)
        floor = peak if peak > 1 else self._floor(observation, parameters)
        if floor > have:
            return bounded(floor, "pre-warmed", parameters)
        if floor == have:
            return bounded(have, "held", parameters)
        return self._down(observation, parameters, have, floor)

    def _floor(self, observation: Observation, parameters: ScaleParameters) -> int:
        if in_system(observation) or self.wanted_while_idle(observation, parameters):
            return 1
        return 0

    def _down(
        self, observation: Observation, parameters: ScaleParameters, have: int, floor: int
    ) -> Decision:
        wait_s = self._last_down_s + self.down_step_s - observation.now_s
        if wait_s > 0 and have > 1:
            return bounded(have, f"{floor} would do; next step in {wait_s:.0f} s", parameters)
        self._last_down_s = observation.now_s
        step = max(have - max(1, have // 10), floor)
        reason = f"{floor} would do" if step else f"idle for {observation.idle_s:.0f} s"
        return bounded(step, reason, parameters)

    def _prewarmed(self, observation: Observation, parameters: ScaleParameters) -> bool:
        if not parameters.prewarm:
            return False
        if parameters.prewarm != self._prewarm_texts:
            self._prewarm = Prewarm(parameters.prewarm)
            self._prewarm_texts = parameters.prewarm
        return self._prewarm.active(observation.wall_s) is not None
