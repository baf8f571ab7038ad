"""Scheduled pre-warm moments: "Mon-Fri 07:55 Europe/Berlin"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from preroll.errors import InputError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PATTERN = re.compile(
    r"^(?:(?P<days>[A-Za-z,-]+)\s+)?(?P<h>\d{1,2}):(?P<m>\d{2})(?:\s+(?P<zone>\S+))?$"
)


@dataclass(frozen=True, slots=True)
class Prewarm:
    """A moment of the week; `days` are 0 (Monday) to 6."""

    days: frozenset[int]
    hour: int
    minute: int
    zone: ZoneInfo

    def seconds_since(self, wall_s: float) -> float:
        """Seconds since the latest such moment at or before `wall_s` (seconds since the epoch)."""
        now = datetime.fromtimestamp(wall_s, self.zone)
        for back in range(8):
            day = now - timedelta(days=back)
            moment = day.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
            # timestamps, not local times: a night in which the clocks change is not 24 hours long
            since = wall_s - moment.timestamp()
            if moment.weekday() in self.days and since >= 0:
                return since
        return float("inf")


@lru_cache(maxsize=256)
def parse_prewarm(text: str) -> Prewarm:
    """Parses "[DAYS ]HH:MM[ ZONE]"; days as `Mon-Fri` or `Sat,Sun`, all by default; zone UTC.

    Raises InputError when a part is not understood.
    """
    match = _PATTERN.match(text.strip())
    if match is None:
        raise InputError(
            f"prewarm '{text}' is not a time: write it as 'Mon-Fri 07:55 Europe/Berlin'"
        )
    hour, minute = int(match["h"]), int(match["m"])
    if hour > 23 or minute > 59:
        raise InputError(f"prewarm '{text}' has no such time of day: 00:00 to 23:59 is allowed")
    return Prewarm(_days(match["days"], text), hour, minute, _zone(match["zone"] or "UTC", text))


def _days(text: str | None, whole: str) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = _day(first, whole), _day(last or first, whole)
        days.update((begin + i) % 7 for i in range((end - begin) % 7 + 1))
    return frozenset(days)


def _day(text: str, whole: str) -> int:
    name = text[:3].capitalize()
    if name not in DAYS:
        raise InputError(f"prewarm '{whole}' has no day '{text}': use {' '.join(DAYS)}")
    return DAYS.index(name)


def _zone(name: str, whole: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InputError(
            f"prewarm '{whole}' names time zone '{name}', which is not known here: "
            "use a name such as Europe/Berlin (package tzdata supplies the list)"
        ) from error
