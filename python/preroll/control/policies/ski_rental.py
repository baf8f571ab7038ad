"""The default for `idle_timeout = "auto"`: rent until renting has cost as much as buying."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

from preroll.control.policies.base import start_s
from preroll.control.policies.target_concurrency import TargetConcurrency
from preroll.core import Decision, Observation, ScaleParameters

FIRST_SHARE = 0.75
"""Time-out over start cost while little is known. 1 has the best worst case (2 x the optimum); real
idle gaps are heavy-tailed, short or very long, so that a lower one costs less (worst case 2.33)."""
LOWEST_SHARE = 0.25
MIN_GAPS = 5
MAX_GAPS = 128


def best_timeout_s(gaps_s: tuple[float, ...], start_cost_s: float, lowest_s: float) -> float:
    """Time-out in [lowest_s, start_cost_s] that would have cost least over `gaps_s`, in seconds.

    A gap of g seconds costs g when g <= T, else T plus the start. O(n log n).
    """
    gaps = sorted(gaps_s)
    sums = [0.0, *accumulate(gaps)]
    best_s, best_cost = start_cost_s, float("inf")
    candidates = [lowest_s, *(g for g in gaps if lowest_s < g < start_cost_s), start_cost_s]
    index = 0
    for timeout_s in candidates:
        while index < len(gaps) and gaps[index] <= timeout_s:
            index += 1
        cost = sums[index] + (len(gaps) - index) * (timeout_s + start_cost_s)
        if cost <= best_cost:
            best_s, best_cost = timeout_s, cost
    return best_s


@dataclass(slots=True)
class SkiRental(TargetConcurrency):
    """Target concurrency; the last replica idles for at most as long as a start is worth.

    With no history the time-out is three quarters of the measured cost of a start: whatever comes
    costs at most 2.33 times the optimum of one who knows the future (the ski-rental bound 1 + 1/x;
    Karlin et al., "Competitive snoopy caching", 1988). Once `MIN_GAPS` gaps of this very stage
    that a time-out could have cut are known, the one in [start/4, start] that would have cost
    least over the latest `MAX_GAPS` of them replaces it; a single gap then costs at most five
    times its optimum.
    """

    name: ClassVar[str] = "ski-rental"
    _long_gaps_s: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_GAPS))
    _last_idle_s: float = 0.0
    _known: tuple[int, float] = (-1, -1.0)
    _num_gaps: int = 0
    _timeout_s: float = 0.0

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
        self._learn(observation)
        return TargetConcurrency.decide(self, observation, parameters)

    def idle_timeout_s(self, observation: Observation, parameters: ScaleParameters) -> float:
        if parameters.idle_timeout_s is not None:
            return parameters.idle_timeout_s
        cost_s = start_s(observation)
        if self._known != (self._num_gaps, cost_s):
            self._known = (self._num_gaps, cost_s)
            lowest_s = LOWEST_SHARE * cost_s
            gaps_s = tuple(g for g in self._long_gaps_s if g > lowest_s)
            self._timeout_s = FIRST_SHARE * cost_s
            if len(gaps_s) >= MIN_GAPS:
                self._timeout_s = best_timeout_s(gaps_s, cost_s, lowest_s)
        return self._timeout_s

    def _learn(self, observation: Observation) -> None:
        """Keeps the gap that just ended, unless no time-out could have cut it.

        A burst brings hundreds of short gaps; they would push the telling ones out of the window
        that the observation has.
        """
        ended_s, self._last_idle_s = self._last_idle_s, observation.idle_s
        if observation.idle_s >= ended_s or ended_s < LOWEST_SHARE * start_s(observation) / 2:
            return
        whole_s = next((g for g in reversed(observation.gaps_s) if g >= ended_s), ended_s)
        self._long_gaps_s.append(whole_s)
        self._num_gaps += 1
