"""Learns the weekly pattern of a stage and starts a replica before the usual morning spike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from preroll.control.policies.base import start_s
from preroll.control.policies.ski_rental import SkiRental
from preroll.core import Decision, Observation, ScaleParameters

SLOT_S = 900.0
SLOTS_PER_DAY = 96
DAYS_PER_WEEK = 7
MIN_DAYS = 3
KEEP_DAYS = 56
LEAD_FACTOR, LEAD_S = 1.25, 60.0  # a start that takes longer than its median still comes in time
THRESHOLD = 0.5


@dataclass(slots=True)
class LearnedSchedule(SkiRental):
    """Ski rental, and a pre-warm when the coming quarter of an hour is usually busy.

    Time is cut into slots of 900 s of UTC wall time. A slot's chance of traffic is its share of
    busy days: of the same weekday once two weeks are known, else of all days after three. A
    replica is wanted when the present slot, or the one that is reached within one start and a
    margin, has a chance of at least `threshold`. A wrong pre-warm costs two idle slots at most.
    """

    name: ClassVar[str] = "learned-schedule"
    acts_when_empty: ClassVar[bool] = True  # pre-warms: asked also while nothing runs
    threshold: float = THRESHOLD
    _busy: dict[int, set[int]] = field(default_factory=dict)  # slot of the day: days with traffic
    _first_day: int = -1

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
        day, slot = _day_and_slot(observation.wall_s)
        if self._first_day < 0:
            self._first_day = day
        if observation.arrivals:
            self._busy.setdefault(slot, set()).add(day)
            self._forget(day)
        return SkiRental.decide(self, observation, parameters)

    def wanted_while_idle(self, observation: Observation, parameters: ScaleParameters) -> bool:
        kept = SkiRental.wanted_while_idle(self, observation, parameters)
        lead_s = LEAD_FACTOR * start_s(observation) + LEAD_S
        now_s = observation.wall_s
        return kept or max(self.chance(now_s), self.chance(now_s + lead_s)) >= self.threshold

    def chance(self, wall_s: float) -> float:
        """Share of the known comparable days on which the slot at `wall_s` saw traffic."""
        day, slot = _day_and_slot(wall_s)
        known = range(self._first_day, day) if self._first_day >= 0 else range(0)
        same = [d for d in known if (day - d) % DAYS_PER_WEEK == 0]
        days = same if len(same) >= 2 else list(known)
        if len(days) < (2 if days is same else MIN_DAYS):
            return 0.0
        busy = self._busy.get(slot, set())
        return sum(d in busy for d in days) / len(days)

    def _forget(self, day: int) -> None:
        """Bounds the memory, and lets a changed pattern replace the old one."""
        if day - self._first_day > KEEP_DAYS:
            self._first_day = day - KEEP_DAYS
            for days in self._busy.values():
                days.difference_update([d for d in days if d < self._first_day])


def _day_and_slot(wall_s: float) -> tuple[int, int]:
    index = int(wall_s // SLOT_S)
    return index // SLOTS_PER_DAY, index % SLOTS_PER_DAY
