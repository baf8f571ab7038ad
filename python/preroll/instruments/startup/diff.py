"""Two profiles side by side: what grew, what shrank, and by how much."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from preroll.instruments.startup.base import Outcome, Profile
from preroll.instruments.startup.text import NAMES, shorten

# Numbers in lines (times, ports, sizes) differ between runs of the same thing.
NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(?:[.,]\d+)*", re.IGNORECASE)
MIN_CHANGE_S = 0.005
MAX_ROWS = 15


@dataclass(frozen=True, slots=True)
class Change:
    """One name in both profiles; seconds, 0 where it is absent."""

    name: str
    before_s: float
    after_s: float

    @property
    def change_s(self) -> float:
        return self.after_s - self.before_s


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> list[Change]:
    """Every name of either, largest change first."""
    names = dict.fromkeys((*before, *after))
    found = [Change(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names]
    return sorted(found, key=lambda change: -abs(change.change_s))


def segments(profile: Profile) -> dict[str, float]:
    """Seconds by label, numbers in names left out."""
    found: dict[str, float] = {}
    for name, seconds in profile.segments.items():
        plain = NUMBERS.sub("N", name)
        found[plain] = found.get(plain, 0.0) + seconds
    return found


def growth(baseline: Profile, now: Profile) -> float:
    """By which share `now` is slower than `baseline`; negative when it is faster."""
    return now.total_s / baseline.total_s - 1.0 if baseline.total_s else 0.0


def report(before: Profile, after: Profile) -> list[str]:
    lines = [
        f"total  {before.total_s:.3f} s → {after.total_s:.3f} s"
        f"  ({after.total_s - before.total_s:+.3f} s, {growth(before, after):+.1%})"
    ]
    for name, profile in (("first", before), ("second", after)):
        if profile.outcome is not Outcome.READY:
            lines.append(f"the {name} is partial: {profile.message}")
    if before.mode != after.mode:
        lines.append(f"recorded differently ({before.mode}, {after.mode}): causes compare badly")
    named = [{NAMES[cause]: s for cause, s in one.causes.items()} for one in (before, after)]
    lines += _table("cause", changes(named[0], named[1]))
    lines += _table("label", changes(segments(before), segments(after)))
    own = [{name: c.exclusive_s for name, c in one.imports.items()} for one in (before, after)]
    lines += _table("import, exclusive", changes(own[0], own[1]))
    lines.append("one run each: a difference may be chance; preroll ablate gives a verdict")
    return lines


def _table(title: str, found: list[Change]) -> Iterator[str]:
    shown = [change for change in found if abs(change.change_s) >= MIN_CHANGE_S][:MAX_ROWS]
    if shown:
        yield f"{title:<50}{'before':>11}{'after':>11}{'change':>11}"
    for one in shown:
        cells = f"{one.before_s:9.3f} s{one.after_s:9.3f} s{one.change_s:+9.3f} s"
        yield f"  {shorten(one.name, 46):<48}{cells}"
