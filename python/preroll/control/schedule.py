"""When a pre-warm schedule wants a replica.

A schedule is a level, not an edge: it asks "did an occurrence begin within the last half hour", so
that a clock that jumps can neither skip it for good nor fire it twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from preroll.config.schedule import Schedule, parse_schedule

HOLD_S = 1800.0
"""How long a scheduled replica is kept without traffic: the rush it prepares for may come late."""


class Prewarm:
    """The `prewarm` schedules of one stage."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._schedules: tuple[tuple[str, Schedule], ...] = tuple(
            (text, parse_schedule(text)) for text in texts
        )

    def active(self, wall_s: float) -> str | None:
        """The schedule that wants a replica at this wall time (epoch seconds), None when none."""
        for text, schedule in self._schedules:
            try:
                if schedule.next_after(wall_s - HOLD_S) <= wall_s:
                    return text
            except (OverflowError, OSError, ValueError):
                continue  # a wall clock outside the calendar: no schedule applies
        return None
