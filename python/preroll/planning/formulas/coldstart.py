"""How often a start is paid: cold-start probability, rate, and the time-out that costs least."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from preroll.errors import InputError
from preroll.planning.formulas.check import number, positive


def poisson_probability(rate: float, idle_timeout_s: float) -> float:
    """P(a request meets a cold replica) = exp(-rate·T).

    `rate`: requests/s; `idle_timeout_s`: T. Valid: Poisson arrivals and service times far below
    the mean gap. Real endpoints are burstier: use `Gaps` on their own gaps.
    Source: exponential gaps; rate 1/300, T = 600 gives 13.5 %.
    """
    return math.exp(-positive("rate", rate, 1e9) * number("idle_timeout_s", idle_timeout_s, 0.0))


def poisson_starts_per_s(rate: float, idle_timeout_s: float) -> float:
    """Cold starts per second = rate·exp(-rate·T). Valid as `poisson_probability`."""
    return rate * poisson_probability(rate, idle_timeout_s)


def worst_rate(idle_timeout_s: float) -> tuple[float, float]:
    """The request rate that makes most cold starts, and how many: (1/T, 1/(e·T)), both per s.

    Source: maximum of rate·exp(-rate·T) over the rate.
    """
    timeout = positive("idle_timeout_s", idle_timeout_s)
    return 1.0 / timeout, 1.0 / (math.e * timeout)


@dataclass(frozen=True, slots=True)
class TimeoutCost:
    """What an idle time-out costs over the observed gaps. Times in seconds, cost in replica-s."""

    idle_timeout_s: float
    cold_probability: float
    cold_starts: int
    idle_s: float
    cost_s: float


class Gaps:
    """Observed idle gaps (end of work to next arrival), sorted, with prefix sums.

    `gaps_s`: n >= 1 numbers >= 0, in any order. Empirical throughout: no distribution is assumed,
    and nothing is known beyond the longest gap seen.
    """

    def __init__(self, gaps_s: Sequence[float]) -> None:
        if not gaps_s:
            raise InputError("no gap was given: at least two arrivals are needed")
        self.sorted_s = sorted(number("gap", gap, 0.0) for gap in gaps_s)
        self._sums = [0.0, *accumulate(self.sorted_s)]

    def __len__(self) -> int:
        return len(self.sorted_s)

    def cost(self, idle_timeout_s: float, start_s: float) -> TimeoutCost:
        """Cost of one time-out: idle replica-seconds kept, plus `start_s` for each cold start.

        A gap g costs g when g <= T, else T + start_s. `start_s`: what a start costs in replica-
        seconds (waiting users may be priced in by a multiple). Valid: one replica, T >= 0.
        Source: the rent-or-buy (ski rental) account.
        """
        timeout = number("idle_timeout_s", idle_timeout_s, 0.0)
        start = number("start_s", start_s, 0.0)
        kept = bisect.bisect_right(self.sorted_s, timeout)
        cold = len(self) - kept
        idle = self._sums[kept] + (cold * timeout if cold else 0.0)
        return TimeoutCost(timeout, cold / len(self), cold, idle, idle + cold * start)

    def best(self, start_s: float) -> TimeoutCost:
        """The time-out of least cost on these gaps. Exact: the optimum is 0 or an observed gap.

        Between two neighbouring gaps the cost only rises with T, so n+1 candidates are enough.
        """
        candidates = [0.0, *dict.fromkeys(self.sorted_s)]
        return min((self.cost(t, start_s) for t in candidates), key=lambda c: c.cost_s)

    def offline_optimum_s(self, start_s: float) -> float:
        """Least cost of a policy that knows each gap beforehand: the sum of min(g, start_s)."""
        start = number("start_s", start_s, 0.0)
        kept = bisect.bisect_right(self.sorted_s, start)
        return self._sums[kept] + (len(self) - kept) * start

    def confidence(self, idle_timeout_s: float, z: float = 1.96) -> tuple[float, float]:
        """Wilson interval of the cold probability; `z` normal quantile. Ignores that gaps are
        correlated, which makes it too narrow on bursty traffic."""
        n, p = len(self), self.cost(idle_timeout_s, 0.0).cold_probability
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))
