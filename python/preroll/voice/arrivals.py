"""When each moment of a stream of audio arrived, so that a delay can be told from speech itself."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable

STEP_S = 0.02
KEPT = 3_000
"""Entries kept: a minute of chunks of 20 ms."""


class Arrivals:
    """`note` how much has come, each time some comes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._positions: deque[float] = deque(maxlen=KEPT)
        self._times: deque[float] = deque(maxlen=KEPT)

    def note(self, position_s: float) -> None:
        if not self._positions or position_s - self._positions[-1] >= STEP_S - 1e-9:
            self._positions.append(position_s)
            self._times.append(self._clock())

    def at(self, position_s: float) -> float | None:
        """When the sample at `position_s` had come (time of the clock); None before any had."""
        if not self._positions:
            return None
        return self._times[min(bisect_left(self._positions, position_s), len(self._times) - 1)]

    def since_ms(self, position_s: float) -> float | None:
        """Milliseconds since then."""
        then_s = self.at(position_s)
        return None if then_s is None else 1e3 * (self._clock() - then_s)
