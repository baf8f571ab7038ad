"""Keep-alive from a histogram of idle times, with a pre-warm before the likely next arrival."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from preroll.control.policies.target_concurrency import TargetConcurrency
from preroll.core import Observation, ScaleParameters

BIN_S = 60.0
NUM_BINS = 240
MIN_GAPS = 10
MIN_BIN_CV = 2.0
HEAD, TAIL, MARGIN = 0.05, 0.99, 0.10
OUT_OF_BOUNDS, FORECAST_MARGIN = 0.5, 0.15


@dataclass(slots=True)
class HybridHistogram(TargetConcurrency):
    """Target concurrency; idle by the hybrid histogram policy of Azure Functions.

    Source: Shahrad et al., "Serverless in the Wild" (USENIX ATC 2020), section 4.2, from its
    published description: one-minute bins over four hours; release at once and pre-warm at the
    5th percentile (rounded down, less 10 %), keep until the 99th (rounded up, plus 10 %); without
    a representative histogram (bin counts with a coefficient of variation under 2, or few gaps)
    keep for the whole range. When most gaps lie outside the range the paper forecasts with ARIMA;
    here the median of the recent gaps is the forecast, with the paper's margin of 15 %.
    """

    name: ClassVar[str] = "hybrid-histogram"
    acts_when_empty: ClassVar[bool] = True  # pre-warms: asked also while nothing runs
    _gaps_s: tuple[float, ...] = ()
    _window_s: tuple[float, float] = (0.0, NUM_BINS * BIN_S)

    def wanted_while_idle(self, observation: Observation, parameters: ScaleParameters) -> bool:
        if observation.gaps_s != self._gaps_s:
            self._gaps_s = observation.gaps_s
            self._window_s = keep_window_s(observation.gaps_s)
        prewarm_s, keep_s = self._window_s
        inside = prewarm_s <= observation.idle_s < keep_s
        return inside or self._prewarmed(observation, parameters)


def keep_window_s(gaps_s: tuple[float, ...]) -> tuple[float, float]:
    """Seconds after the end of work between which a replica is kept: (pre-warm, release)."""
    range_s = NUM_BINS * BIN_S
    inside = [g for g in gaps_s if g < range_s]
    if len(gaps_s) < MIN_GAPS:
        return 0.0, range_s
    if len(inside) < (1 - OUT_OF_BOUNDS) * len(gaps_s):
        forecast_s = median(gaps_s)
        return forecast_s * (1 - FORECAST_MARGIN), forecast_s * (1 + FORECAST_MARGIN)
    counts = [0] * NUM_BINS
    for gap_s in inside:
        counts[int(gap_s // BIN_S)] += 1
    if _cv(counts) < MIN_BIN_CV:
        return 0.0, range_s
    head = _percentile_bin(counts, HEAD) * BIN_S * (1 - MARGIN)
    tail = (_percentile_bin(counts, TAIL) + 1) * BIN_S * (1 + MARGIN)
    return head, tail


def _cv(counts: list[int]) -> float:
    mean = sum(counts) / len(counts)
    return math.sqrt(sum((c - mean) ** 2 for c in counts) / len(counts)) / mean


def _percentile_bin(counts: list[int], share: float) -> int:
    rest = share * sum(counts)
    for index, count in enumerate(counts):
        rest -= count
        if count and rest <= 0:
            return index
    return len(counts) - 1
