"""A queueing station on a simulated clock: the executor whose thresholds are known exactly.

N clients without think time before k servers with exponential service of mean S: an arrival waits
for N − k completions at rate k/S, so its wait is Erlang(N − k, k/S) distributed.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Station:
    """`limit_s`: a longer wait is a failure. From `degrade_above` requests on, service takes
    `degrade_factor` times as long, until no more than `degrade_below` are left."""

    servers: int
    service_s: float
    limit_s: float
    degrade_above: int = 10**9
    degrade_below: int = 0
    degrade_factor: float = 1.0

    def share(self, level: int) -> float:
        """The exact share of failures at `level` in flight, not degraded."""
        phases = level - self.servers
        if phases <= 0:
            return 0.0
        mean = self.limit_s * self.servers / self.service_s
        terms = (j * math.log(mean) - mean - math.lgamma(j + 1) for j in range(phases))
        return math.fsum(math.exp(t) for t in terms)

    def threshold(self, share: float) -> int:
        """The lowest level that fails at least as often as `share` (0 < share < 1)."""
        level = self.servers
        while self.share(level) < share:
            level += 1
        return level

    def recovery(self, material: float) -> int:
        """The highest level that is good on the way down: a completion at `degrade_below` + 1 ends
        the degradation."""
        good = self.threshold(material) - 1
        return min(good, self.degrade_below + 1) if self.degrade_factor > 1 else good


@dataclass
class SimulatedProbe:
    """Sends closed-loop load to a station; the same seed gives the same outcomes."""

    station: Station
    seed: int = 0
    now_s: float = 0.0
    requests: int = 0
    _running: list[tuple[float, int]] = field(default_factory=list)
    _queue: deque[tuple[float, int]] = field(default_factory=deque)
    _degraded: bool = False

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._outcomes: dict[int, bool] = {}
        self._sequence = 0

    def spent(self) -> int:
        return self.requests

    def measure(self, level: int, count: int, *, drain: bool) -> list[bool]:
        if drain:
            while self._running:
                self._complete()
        while self._in_system() > level:
            self._complete()
        while self._in_system() < level:
            self._arrive()
        ended: list[bool] = []
        for number in range(level + count):
            outcome = self._complete()
            self._arrive()
            if number >= level:
                ended.append(outcome)
        return ended

    def _in_system(self) -> int:
        return len(self._running) + len(self._queue)

    def _arrive(self) -> None:
        self._sequence += 1
        self._queue.append((self.now_s, self._sequence))
        self._degraded |= self._in_system() >= self.station.degrade_above
        self._serve()

    def _serve(self) -> None:
        while self._queue and len(self._running) < self.station.servers:
            arrived, key = self._queue.popleft()
            factor = self.station.degrade_factor if self._degraded else 1.0
            service = self._random.expovariate(1.0) * self.station.service_s * factor
            self._outcomes[key] = self.now_s - arrived > self.station.limit_s
            heapq.heappush(self._running, (self.now_s + service, key))

    def _complete(self) -> bool:
        self.now_s, key = heapq.heappop(self._running)
        self.requests += 1
        if self._in_system() <= self.station.degrade_below:
            self._degraded = False
        self._serve()
        return self._outcomes.pop(key)
