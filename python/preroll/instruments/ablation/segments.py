"""Seconds of a start by name: registered segments, and every phase by the engine's label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from preroll.core import Start, Wait
from preroll.engines.bill import Line
from preroll.errors import InputError

CPU = "cpu"
NUMBER = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the start, named before the first run.

    `name` is "cpu" (processor time of the whole tree), one of the seven waits, text of a phase's
    label, or "FROM..TO": between the first
    lines that match two regular expressions (nothing before `..` is the spawn, nothing behind it
    is ready).
    """

    name: str
    between: tuple[re.Pattern[str] | None, re.Pattern[str] | None] | None = None


def parse(name: str) -> Segment:
    """Raises InputError for an empty name or what is no regular expression."""
    first, dots, last = name.partition("..")
    if not name or name == "..":
        raise InputError(f"--segment {name!r}: allowed: a wait, a label, or FROM..TO")
    if not dots:
        return Segment(name)
    try:
        ends = [re.compile(text) if text else None for text in (first, last)]
    except re.error as error:
        raise InputError(f"--segment {name!r}: not a regular expression ({error})") from None
    return Segment(name, (ends[0], ends[1]))


def seconds(segment: Segment, start: Start, lines: Sequence[Line], cpu_s: float) -> float | None:
    """How long it took; None when the start has no such segment."""
    if segment.name == CPU:
        return cpu_s
    if segment.between is not None:
        begun = _first(segment.between[0], lines, start.spawned_ns, start.spawned_ns)
        if begun is None:
            return None
        ended = _first(segment.between[1], lines, start.ready_ns, begun)
        return None if ended is None else (ended - begun) / 1e9
    if segment.name in list(Wait):
        found = [p.duration_s for p in start.phases if p.wait == segment.name]
    else:
        found = [p.duration_s for p in start.phases if segment.name in p.label]
    return sum(found) if found else None


def _first(
    pattern: re.Pattern[str] | None, lines: Sequence[Line], default_ns: int, after_ns: int
) -> int | None:
    """When the first line matches, at or after `after_ns`."""
    if pattern is None:
        return default_ns
    return next((x.t_ns for x in lines if x.t_ns >= after_ns and pattern.search(x.text)), None)


def measured(
    wanted: Sequence[Segment], start: Start, lines: Sequence[Line], cpu_s: float
) -> dict[str, float]:
    """The registered segments that this start has."""
    values = {segment.name: seconds(segment, start, lines, cpu_s) for segment in wanted}
    return {name: value for name, value in values.items() if value is not None}


def phases(start: Start) -> dict[str, float]:
    """Seconds by label, its figures masked so that runs compare; they sum to the total."""
    totals: dict[str, float] = {}
    for phase in start.phases:
        label = NUMBER.sub("#", phase.label) or phase.wait
        totals[label] = totals.get(label, 0.0) + phase.duration_s
    return totals
