"""Idle time: how long a stage has had nothing to do, and the gaps between its visitors."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MAX_GAPS = 256
"""Enough to see a week's pattern of a quiet endpoint, little enough to recompute every second."""


@dataclass(slots=True)
class IdleTracker:
    """Turns the door's counters of one stage into idle time and idle gaps (seconds)."""

    gaps_s: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_GAPS))
    _arrivals: int | None = None
    _quiet_since_s: float | None = None

    def update(
        self, now_s: float, *, busy: int, arrivals: int, last_activity_s: float, ready_s: float
    ) -> float:
        """Idle time now. `ready_s`: when the newest replica became ready: it has not idled longer.

        A counter that fell (the door restarted) begins anew and is no arrival.
        """
        came = self._arrivals is not None and arrivals > self._arrivals
        if came and self._quiet_since_s is not None:
            self.gaps_s.append(max(0.0, last_activity_s - self._quiet_since_s))
            self._quiet_since_s = None
        self._arrivals = arrivals
        if busy:
            self._quiet_since_s = None
            return 0.0
        if self._quiet_since_s is None:
            self._quiet_since_s = last_activity_s or now_s
        return max(0.0, now_s - max(self._quiet_since_s, ready_s))
