"""The search for the thresholds: gallop, bisect, recover. Whoever sends the load is behind `Probe`.

One executor sends real requests (live.py), another is a queue on a simulated clock (simulated.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from preroll.instruments.cliff.levels import Pool, Threshold
from preroll.instruments.intervals import share_interval

EXCEEDS, MATERIAL, COLLAPSE = "exceeds baseline", "material", "collapse"


class Probe(Protocol):
    """Keeps `level` requests in flight and tells how they ended."""

    def measure(self, level: int, count: int, *, drain: bool) -> list[bool]:
        """The outcomes (True is a failure) of `count` requests in the order in which they ended,
        after the level has settled. `drain`: everything before it has ended first."""

    def spent(self) -> int:
        """All requests so far, those of settling included."""


class ExhaustedError(Exception):
    """The budget is used up or too much has failed; the message says which."""


@dataclass(frozen=True, slots=True)
class Effort:
    """`cycles`: requests per look at a level, in multiples of the level (a queue forgets about once
    per cycle); `max_cycles`: when a level is left undecided. `resolution`: the width of the last
    bracket over its level."""

    cycles: int
    max_cycles: int
    resolution: float


# A small budget gets a rough answer instead of one threshold told to the last level and nothing
# else; every later pass goes on from what is known.
PASSES = (Effort(4, 8, 0.15), Effort(10, 20, 0.06), Effort(10, 60, 0.03))
# Without a failure, fewer outcomes cannot be told from the material 5 % (126 at 99 %).
SURE = 130
# Alone is slow: the first pass does with what tells a server that always fails from one that does
# not.
QUICK_BASELINE = 40


@dataclass(frozen=True, slots=True)
class Settings:
    """Shares are of failures above the baseline; counts are requests."""

    exceeds: float = 0.01
    material: float = 0.05
    collapse: float = 0.50
    passes: tuple[Effort, ...] = PASSES
    min_count: int = 60
    max_level: int = 1024
    max_requests: int = 100_000
    max_seconds: float = 3600.0
    max_failures: int | None = None
    margin: float = 0.9
    recovery_step: float = 0.8
    recovery_refinements: int = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """A level as it was seen: the share of `count` requests that failed, and between which
    bounds the true one lies (as sure as one look must be, levels.py)."""

    level: int
    share: float
    count: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OpenRun:
    """Poisson arrivals at `rate_per_s`, which is `utilisation` of the closed loop's throughput at
    the limit: the share of `count` requests that failed with its 95 % interval; `verdict` against
    the material share: "holds", "fails" or "undecided"; `mean_in_flight`: the time average."""

    utilisation: float
    rate_per_s: float
    share: float
    low: float
    high: float
    count: int
    mean_in_flight: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Cliff:
    """What was found. `recovery`: the highest level that is good again on the way down;
    `open_runs`: how the limit stood users who come when they like (confirm.py)."""

    baseline: float
    thresholds: tuple[Threshold, ...]
    recovery: int | None
    up: tuple[Seen, ...]
    down: tuple[Seen, ...]
    first_failure: int | None
    requests: int
    ended: str
    margin: float
    is_door: bool = False
    open_runs: tuple[OpenRun, ...] = ()

    def threshold(self, name: str) -> Threshold:
        return next(t for t in self.thresholds if t.name == name)

    @property
    def limit(self) -> int | None:
        """min(lower bound of material, recovery) × margin; None while either is unresolved, and
        never for a door: its queue was measured, not the server."""
        if self.is_door:
            return None
        material = self.threshold(MATERIAL)
        if material.low is None or self.recovery is None:
            return None
        return max(1, math.floor(min(material.low, self.recovery) * self.margin))


@dataclass
class Search:
    """One search; `say` gets a line whenever something was learned."""

    probe: Probe
    settings: Settings = field(default_factory=Settings)
    say: Callable[[str], None] = lambda line: None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.pool = Pool()
        self.down: list[Seen] = []
        self.first_failure: int | None = None
        self.effort = self.settings.passes[0]
        self._start = self.clock()
        self._failures = self._in_flight = 0

    def run(self) -> Cliff:
        """Finds what the budget allows; what it does not allow is unresolved, not guessed.

        An interrupt ends the search with what is known by then."""
        ended, recovery = "complete", None
        try:
            self._look(1, QUICK_BASELINE)
            self._gallop()
            for effort in self.settings.passes:
                self.effort = effort
                if effort is not self.settings.passes[0] and self.pool.count(1) < SURE:
                    self._look(1, SURE - self.pool.count(1))
                for name in (MATERIAL, COLLAPSE):
                    self._bisect(self.share_of(name))
                if effort in (self.settings.passes[0], self.settings.passes[-1]):
                    recovery = self._recover()
                # One in a hundred takes the most requests to be told, and no limit needs it.
                if effort is not self.settings.passes[0]:
                    self._bisect(self.share_of(EXCEEDS))
        except ExhaustedError as error:
            ended = str(error)
        except KeyboardInterrupt:
            ended = "interrupted"
        return self._cliff(ended, recovery)

    @property
    def baseline(self) -> float:
        """The share that fails when one request runs alone."""
        return self.pool.share(1) if self.pool.count(1) else 0.0

    def share_of(self, name: str) -> float:
        s = self.settings
        if name == COLLAPSE:
            return max(s.collapse, self.baseline + s.material)
        return self.baseline + (s.material if name == MATERIAL else s.exceeds)

    def _cliff(self, ended: str, recovery: int | None) -> Cliff:
        names = (EXCEEDS, MATERIAL, COLLAPSE)
        pool = self.pool
        up = tuple(Seen(n, pool.share(n), pool.count(n), *pool.bounds(n)) for n in pool.levels())
        return Cliff(
            baseline=self.baseline,
            thresholds=tuple(self.pool.threshold(n, self.share_of(n)) for n in names)
            if self.pool.levels()
            else tuple(Threshold(n, 0.0, None, None, None, ended) for n in names),
            recovery=recovery,
            up=up,
            down=tuple(self.down),
            first_failure=self.first_failure,
            requests=self.probe.spent(),
            ended=ended,
            margin=self.settings.margin,
        )

    def _measure(self, level: int, count: int, drain: bool) -> list[bool]:
        s = self.settings
        # What is in flight still ends, and `level` more settle the server first.
        if self.probe.spent() + self._in_flight + level + count > s.max_requests:
            raise ExhaustedError(f"the budget of {s.max_requests} requests is used up")
        if self.clock() - self._start > s.max_seconds:
            raise ExhaustedError(f"the budget of {s.max_seconds:g} s is used up")
        self._in_flight = level
        outcomes = self.probe.measure(level, count, drain=drain)
        self._failures += sum(outcomes)
        if s.max_failures is not None and self._failures > s.max_failures:
            raise ExhaustedError(f"more than {s.max_failures} requests have failed")
        return outcomes

    def _look(self, level: int, count: int) -> None:
        outcomes = self._measure(level, count, drain=True)
        if any(outcomes) and (self.first_failure is None or level < self.first_failure):
            self.first_failure = level
        self.pool.add(level, outcomes)
        low, high = self.pool.bounds(level)
        share, total = self.pool.share(level), self.pool.count(level)
        self.say(f"{level} in flight: {share:.1%} fail [{low:.1%}, {high:.1%}] of {total}")

    def _first_count(self, level: int) -> int:
        return max(self.settings.min_count, self.effort.cycles * level)

    def _gallop(self) -> None:
        """Doubles the level until it has collapsed; a quarter of a look is enough for the alarm."""
        level = 2
        while level <= self.settings.max_level:
            count = self._first_count(level)
            self._look(level, max(20, count // 4))
            if self._is_alarm(level):
                return
            level *= 2
        raise ExhaustedError(f"no collapse up to {self.settings.max_level} in flight")

    def _is_alarm(self, level: int) -> bool:
        outcomes = self.pool.outcomes[level]
        found = share_interval(sum(outcomes), len(outcomes))
        return found.low >= self.share_of(COLLAPSE) or (
            found.value >= self.share_of(COLLAPSE) and found.low >= self.share_of(MATERIAL)
        )

    def _bracket(self, share: float) -> tuple[int, int] | None:
        """The highest level below `share` and the lowest one not below, by the monotone fit."""
        fit = self.pool.fit()
        below = [level for level, value in fit if value < share]
        above = [level for level, value in fit if value >= share]
        if not above:
            return None
        return (max(below) if below else 0), min(above)

    def _bisect(self, share: float) -> None:
        while True:
            bracket = self._bracket(share)
            if bracket is None:
                self._higher()
                continue
            low, high = bracket
            # Both ends are made sure of first: a wrong end would hide the threshold for good.
            if any(self._sharpen(level, share) for level in (low, high) if level):
                continue
            if high - low <= max(1, self.effort.resolution * high):
                return
            middle = (low + high) // 2 if high < 2 * low else round(math.sqrt(max(1, low) * high))
            self._look(min(max(middle, low + 1), high - 1), self._first_count(middle))

    def _higher(self) -> None:
        """A longer look at the top did not confirm the alarm: the threshold lies above it."""
        top = self.pool.levels()[-1]
        level = min(self.settings.max_level, top + max(1, top // 4))
        if level == top:
            raise ExhaustedError(f"no collapse up to {self.settings.max_level} in flight")
        self._look(level, self._first_count(level))

    def _sharpen(self, level: int, share: float) -> bool:
        """Looks again at a level that cannot be told from `share`; False: told, or given up."""
        most = max(SURE, self.effort.max_cycles * level)
        if self.pool.side(level, share) != 0 or self.pool.count(level) >= most:
            return False
        self._look(level, self._first_count(level))
        return True

    def _recover(self) -> int | None:
        """From collapse downwards with the load on; refined by falling again to a level between."""
        collapse = self.pool.threshold(COLLAPSE, self.share_of(COLLAPSE)).level
        if collapse is None:
            return None
        # Beyond the threshold: what recovers slowly must have been fully down first.
        top = max(collapse + 1, math.ceil(collapse * 1.5))
        bad, good = top, 0
        level = top
        while level >= 1 and not good:
            self._down(top, drain=True) if level == top else None
            if level != top and not self._down(level):
                good = level
            elif level != top:
                bad = level
            level = min(level - 1, math.floor(level * self.settings.recovery_step))
        for _ in range(self.settings.recovery_refinements if good else 0):
            if bad - good <= max(1, self.effort.resolution * bad):
                break
            self._down(top, drain=True)
            middle = (good + bad) // 2
            if self._down(middle):
                bad = middle
            else:
                good = middle
        return good or None

    def _down(self, level: int, drain: bool = False) -> bool:
        """Whether the level still fails materially, reached without letting anything drain."""
        outcomes = self._measure(level, self._first_count(level) // 2 + 20, drain=drain)
        share = sum(outcomes) / len(outcomes)
        own = Pool({level: outcomes})
        self.down.append(Seen(level, share, len(outcomes), *own.bounds(level)))
        self.say(f"down to {level} in flight: {share:.1%} fail of {len(outcomes)}")
        return share >= self.share_of(MATERIAL)
