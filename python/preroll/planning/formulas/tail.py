"""The tail over n calls: how often a run of many calls meets a slow one."""

from __future__ import annotations

import math

from preroll.planning.formulas.check import number, whole


def meets_slow(calls: int, slow_share: float = 0.01) -> float:
    """P(at least one of n calls is slow) = 1-(1-q)ⁿ, q = `slow_share` (0.01: beyond p99).

    Valid: independent calls; calls that share a bad replica are less spread than this.
    Source: Dean and Barroso, The Tail at Scale (2013). 20 calls 18 %, 100 calls 63 %.
    """
    n = whole("calls", calls, 0, 10**9)
    q = number("slow_share", slow_share, 0.0, 1.0)
    return 1.0 if q == 1.0 and n else -math.expm1(n * math.log1p(-q)) if q < 1.0 else 0.0


def percentile_needed(calls: int, run_slow_share: float) -> float:
    """The share of single calls that may be slow so that at most `run_slow_share` of runs are.

    1-(1-r)^(1/n). Valid as `meets_slow`; n >= 1, 0 <= r < 1.
    """
    n = whole("calls", calls, 1, 10**9)
    r = number("run_slow_share", run_slow_share, 0.0, 0.999999)
    return -math.expm1(math.log1p(-r) / n)


def sequential_mean_s(calls: int, mean_s: float) -> float:
    """Mean time of n calls one after another: n·mean, in seconds (slow ones add, not overlap)."""
    return whole("calls", calls, 0, 10**9) * number("mean_s", mean_s, 0.0, 1e9)
