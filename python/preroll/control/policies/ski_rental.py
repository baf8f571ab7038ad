"""The default for `idle_timeout = "auto"`: rent until renting has cost as much as buying."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from preroll.control.policies.base import start_s
from preroll.control.policies.target_concurrency import TargetConcurrency
from preroll.core import Observation, ScaleParameters

MIN_GAPS = 20
LOWEST_SHARE = 0.25


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
    """Target concurrency; the last replica idles at most for as long as a start is worth.

    With no history the time-out is the measured cost of a start: whatever comes, that costs at
    most twice the optimum of one who knows the future (the classical ski-rental bound; Karlin et
    al., "Competitive snoopy caching", 1988). Once `MIN_GAPS` gaps of this very stage are known,
    the time-out in [start/4, start] that would have cost least over them replaces it; one gap then
    costs at most five times its optimum, and the recent gaps as a whole less than before.
    """

    name: ClassVar[str] = "ski-rental"
    _gaps_s: tuple[float, ...] = ()
    _cost_s: float = -1.0
    _timeout_s: float = 0.0

    def idle_timeout_s(self, observation: Observation, parameters: ScaleParameters) -> float:
        if parameters.idle_timeout_s is not None:
            return parameters.idle_timeout_s
        cost_s, gaps_s = start_s(observation), observation.gaps_s
        if gaps_s != self._gaps_s or cost_s != self._cost_s:
            self._gaps_s, self._cost_s, self._timeout_s = gaps_s, cost_s, cost_s
            if len(gaps_s) >= MIN_GAPS:
                self._timeout_s = best_timeout_s(gaps_s, cost_s, LOWEST_SHARE * cost_s)
        return self._timeout_s
