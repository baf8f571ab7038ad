"""Outcomes pooled by level of concurrency, and the thresholds that they show.

The share of failures is taken to be non-decreasing in the level: pooling uses it, bounds use it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from preroll.instruments.intervals import design_effect, pool_monotone, share_interval

MIN_BATCHES, MAX_BATCHES = 5, 20
BATCH_CYCLES = 2
# A level is looked at until it can be told apart, which flatters it: 99 % per look keeps the
# coverage of the final interval above 90 % (benchmarks/cliff measures it).
LOOK_CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Threshold:
    """The lowest level whose share of failures reaches `share`, in requests in flight.

    `level` None: unresolved, and `reason` says why. The truth lies in [low, high] with 95 %
    confidence; an end that no level bounds is None.
    """

    name: str
    share: float
    level: int | None
    low: int | None
    high: int | None
    reason: str = ""


@dataclass(slots=True)
class Pool:
    """Every outcome by level, True is a failure; outcomes of one level in the order they ended."""

    outcomes: dict[int, list[bool]] = field(default_factory=dict)

    def add(self, level: int, outcomes: Sequence[bool]) -> None:
        self.outcomes.setdefault(level, []).extend(outcomes)

    def count(self, level: int) -> int:
        return len(self.outcomes.get(level, ()))

    def levels(self) -> list[int]:
        return sorted(level for level, outcomes in self.outcomes.items() if outcomes)

    def share(self, level: int) -> float:
        outcomes = self.outcomes[level]
        return sum(outcomes) / len(outcomes)

    def bounds(self, level: int) -> tuple[float, float]:
        """Of this level alone, but no surer than its neighbours: a run of luck looks like
        independence."""
        outcomes = self.outcomes[level]
        levels = self.levels()
        at = levels.index(level)
        effect = max(self._effect(n) for n in levels[max(0, at - 1) : at + 2])
        found = share_interval(sum(outcomes), len(outcomes), LOOK_CONFIDENCE, effect)
        return found.low, found.high

    def _effect(self, level: int) -> float:
        """The design effect; neighbours in a queue share their fate over about one `level` of
        requests, so batches are longer than that."""
        outcomes = self.outcomes[level]
        fitting = len(outcomes) // (BATCH_CYCLES * level)
        return design_effect(outcomes, max(MIN_BATCHES, min(MAX_BATCHES, fitting)))

    def monotone_bounds(self) -> dict[int, tuple[float, float]]:
        """Bounds by level, tightened by what lower and higher levels say."""
        levels = self.levels()
        own = [self.bounds(level) for level in levels]
        lows, highs = [b[0] for b in own], [b[1] for b in own]
        for i in range(1, len(levels)):
            lows[i] = max(lows[i], lows[i - 1])
        for i in range(len(levels) - 2, -1, -1):
            highs[i] = min(highs[i], highs[i + 1])
        return {level: (lows[i], highs[i]) for i, level in enumerate(levels)}

    def side(self, level: int, share: float) -> int:
        """−1: below `share` beyond doubt, +1: at or above it beyond doubt, 0: cannot be told."""
        low, high = self.bounds(level)
        if high < share:
            return -1
        return 1 if low >= share else 0

    def fit(self) -> list[tuple[int, float]]:
        """The monotone shares by level."""
        levels = self.levels()
        weights = [float(self.count(level)) for level in levels]
        shares = pool_monotone([self.share(level) for level in levels], weights)
        return list(zip(levels, shares, strict=True))

    def threshold(self, name: str, share: float) -> Threshold:
        """Where the monotone fit crosses `share`, and between which levels the truth must lie."""
        fit, bounds = self.fit(), self.monotone_bounds()
        below = [level for level, (_, high) in bounds.items() if high < share]
        above = [level for level, (low, _) in bounds.items() if low >= share]
        low = max(below) + 1 if below else None
        high = min(above) if above else None
        crossing = _crossing(fit, share)
        if crossing is None:
            return Threshold(name, share, None, low, high, "no level that was tried reaches it")
        level = math.ceil(crossing)
        # The fit is one estimate, the bounds another: the interval holds both.
        low = level if low is not None and low > level else low
        high = level if high is not None and high < level else high
        reason = "" if low is not None and high is not None else "its interval is open"
        return Threshold(name, share, level, low, high, reason)


def _crossing(fit: Sequence[tuple[int, float]], share: float) -> float | None:
    for i, (level, value) in enumerate(fit):
        if value < share:
            continue
        if i == 0:
            return float(level)
        before, lower = fit[i - 1]
        if value == share:
            return float(level)
        return before + (level - before) * (share - lower) / (value - lower)
    return None
