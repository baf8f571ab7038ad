"""Pre-warm schedules: "Mon-Fri 07:55 Europe/Berlin"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
SHAPE = re.compile(r"(?:(\S+) +)?([0-9]{1,2}):([0-9]{2})(?: +(\S+))?")
ALLOWED = 'allowed: [DAYS] HH:MM [ZONE], such as "Mon-Fri 07:55 Europe/Berlin" or "daily 06:00 UTC"'


@dataclass(frozen=True, slots=True)
class Schedule:
    """A time of day on some days of the week (0 is Monday) in a time zone."""

    days: frozenset[int]
    at: time
    zone: tzinfo

    def next_after(self, wall_s: float) -> float:
        """Seconds since the epoch of the first occurrence strictly after `wall_s`.

        A time that a change of the clocks skips is taken at the same distance after midnight's
        offset (PEP 495, fold=0), one that happens twice at its first occurrence.
        """
        day = datetime.fromtimestamp(wall_s, self.zone).date()
        for _ in range(9):
            moment = datetime.combine(day, self.at, self.zone).timestamp()
            if day.weekday() in self.days and moment > wall_s:
                return moment
            day += timedelta(days=1)
        raise AssertionError("a week has passed without an occurrence")


def parse_schedule(text: str) -> Schedule:
    """Reads a schedule; ValueError says what is allowed."""
    match = SHAPE.fullmatch(text.strip())
    if not match or int(match[2]) > 23 or int(match[3]) > 59:
        raise ValueError(f"not a schedule; {ALLOWED}")
    zone = _zone(match[4])
    return Schedule(_days(match[1] or "daily"), time(int(match[2]), int(match[3])), zone)


def _zone(name: str | None) -> tzinfo:
    if name is None or name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name!r}; {ALLOWED}") from None


def _days(text: str) -> frozenset[int]:
    if text.lower() == "daily":
        return frozenset(range(7))
    days: set[int] = set()
    for part in text.lower().split(","):
        first, *rest = part.split("-")
        last = rest[0] if rest else first
        if first not in DAYS or last not in DAYS or len(rest) > 1:
            raise ValueError(f"unknown day in {text!r}; {ALLOWED}")
        start, end = DAYS.index(first), DAYS.index(last)
        days |= {d % 7 for d in range(start, end + 1 if end >= start else end + 8)}
    return frozenset(days)
