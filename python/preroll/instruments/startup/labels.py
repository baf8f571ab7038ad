"""Output lines as labels: which stretch of the start each line speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from preroll.core import Phase
from preroll.engines.bill import said

# A stretch shorter than this share of the start is not worth a row of its own.
MIN_SHARE = 0.01
MAX_SEGMENTS = 60
SPAWN = "before the first line"
AFTER = "after '"

ANNOUNCES = re.compile(r"(^|\s)(start\w*|begin\w*|\w{3,}ing)\b|(\.\.\.|…)\s*$", re.IGNORECASE)
REPORTS = re.compile(
    r"\b(took|done|loaded|finished|complete[ds]?|built|compiled|imported|initiali[sz]ed|ready|saved"
    r"|captured|warmed|listening|started|downloaded|fetched|created)\b|\bin \d+(\.\d+)? ?m?s\b",
    re.IGNORECASE,
)
# What changes from one line of a progress bar to the next.
PROGRESS = re.compile(r"[\d█▉▊▋▌▍▎▏#=>.,|/\\:%<\[\]?\s-]+")
PREFIX_LENGTH = 24


@dataclass(frozen=True, slots=True)
class Said:
    """A line of output, seconds since spawn. `is_bound`: no line, but where a known engine's phase
    begins; it names what follows, whatever its words."""

    t_s: float
    text: str
    is_bound: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """A stretch under one name. `is_claimed`: a line says what it is, before or after it."""

    name: str
    start_s: float
    end_s: float
    is_claimed: bool
    wait: str | None = None


def labels(lines: Sequence[Said], total_s: float, phases: Sequence[Phase] = ()) -> list[Label]:
    """Contiguous labels from 0 to `total_s`. `phases`: of a known engine, times since spawn in ns;
    their bounds are bounds of labels too."""
    points = _points(lines, total_s, phases)
    bounds = frozenset(phase.start_ns / 1e9 for phase in phases)
    found = _merged(list(_stretches(points, total_s)), total_s, bounds)
    return [_with_wait(label, phases) for label in found]


def _points(lines: Sequence[Said], total_s: float, phases: Sequence[Phase]) -> list[Said]:
    inside = [Said(line.t_s, said(line.text)) for line in lines if 0 <= line.t_s < total_s]
    points = [line for line in inside if line.text]
    times = {round(line.t_s, 6) for line in points}
    extra = [Said(phase.start_ns / 1e9, phase.label, True) for phase in phases[1:]]
    points += [one for one in extra if round(one.t_s, 6) not in times]
    return sorted(points, key=lambda point: point.t_s)


def _stretches(points: Sequence[Said], total_s: float) -> Iterator[Label]:
    """One for each line, up to the next; first what came before any line."""
    before = Said(0.0, "")
    for point in (*points, Said(total_s, "")):
        if point.t_s > before.t_s:
            name, is_claimed = _name(before, point)
            yield Label(name, before.t_s, point.t_s, is_claimed)
        before = point


def _name(first: Said, second: Said) -> tuple[str, bool]:
    """The name of the stretch between two lines: the first may announce it, the second report it.
    A line that reports something done says nothing of what comes after it."""
    if first.is_bound:
        return first.text, True
    opening, closing = first.text, "" if second.is_bound else second.text
    announces = bool(ANNOUNCES.search(opening)) and not REPORTS.search(opening)
    if not announces and closing and REPORTS.search(closing):
        return closing, True
    if not opening:
        return SPAWN, False
    if not announces and REPORTS.search(opening):
        return f"{AFTER}{opening}'", False
    return opening, True


def _alike(a: str, b: str) -> bool:
    """Whether two lines are steps of one progress bar."""
    first, second = (PROGRESS.sub(" ", text).strip()[:PREFIX_LENGTH] for text in (a, b))
    return first == second and bool(first)


def _merged(stretches: Sequence[Label], total_s: float, bounds: frozenset[float]) -> list[Label]:
    """Progress bars and chatter become one label each; crumbs join what came before. Nothing but
    crumbs is joined across `bounds`."""
    least_s = max(MIN_SHARE * total_s, 0.0)
    while True:
        merged: list[Label] = []
        for one in stretches:
            last = merged[-1] if merged else None
            is_crumb = one.end_s - one.start_s < least_s
            was_crumb = last is not None and last.end_s - last.start_s < least_s
            is_same = last is not None and _alike(last.name, one.name)
            if last is not None and (is_crumb or (is_same and one.start_s not in bounds)):
                merged[-1] = Label(last.name, last.start_s, one.end_s, last.is_claimed)
            elif last is not None and was_crumb:
                merged[-1] = Label(one.name, last.start_s, one.end_s, one.is_claimed)
            else:
                merged.append(one)
        if len(merged) <= MAX_SEGMENTS:
            return merged
        stretches, least_s = merged, max(least_s * 1.5, 1e-6)


def _with_wait(label: Label, phases: Sequence[Phase]) -> Label:
    if not phases:
        return label
    middle_ns = (label.start_s + label.end_s) / 2 * 1e9
    wait = next((p.wait for p in phases if p.start_ns <= middle_ns < p.end_ns), phases[-1].wait)
    return Label(label.name, label.start_s, label.end_s, label.is_claimed, str(wait))
