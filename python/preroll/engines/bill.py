"""The start bill: stamped lines and known steps become contiguous phases that sum to the total."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from preroll.core import Gap, Phase, Preparedness, ReplicaState, Start, Wait
from preroll.engines.base import Mark

LABEL_LENGTH = 80

# What loggers put before what was said: process, level, time, place. Colours come first.
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PREFIX = re.compile(
    r"^(?:(?:\([^()]*\)|\[[^\[\]]*\]|(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL):?(?=\s)"
    r"|\d+[:.,/-][\d:.,/TZ+-]*(?=\s))\s*)*"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line as the holder stamped it; CLOCK_MONOTONIC ns."""

    t_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """What Preroll itself did from `t_ns` on. From its warm-up on, lines no longer say anything:
    the engine logs requests then."""

    t_ns: int
    wait: Wait
    label: str


@dataclass(frozen=True, slots=True)
class _Turn:
    t_ns: int
    then: Wait | None
    ended: Wait | None
    label: str
    lasted_ns: int | None = None


STATES = {
    Wait.NODE: ReplicaState.PLACED,
    Wait.IMAGE: ReplicaState.PLACED,
    Wait.INIT: ReplicaState.BOOTING,
    Wait.FETCH: ReplicaState.FETCHING,
    Wait.LOAD: ReplicaState.LOADING,
    Wait.COMPILE: ReplicaState.COMPILING,
    Wait.WARM: ReplicaState.WARMING,
}


def bill(
    replica: str,
    stage: str,
    spawned_ns: int,
    ready_ns: int,
    lines: Sequence[Line],
    marks: Sequence[Mark] = (),
    steps: Sequence[Step] = (),
    preparedness: Preparedness | None = None,
) -> Start:
    """The bill of one start. `lines` in the order of the holder; times outside the start are cut.

    Until the first mark or step, time is billed to `init`. The phases are cut out of the interval
    from `spawned_ns` to `ready_ns` at the marks and steps, so they sum to the total whatever the
    lines say. Without `preparedness`, a start that fetched had a warm node, another one local
    weights. Raises ValueError when `ready_ns` is before `spawned_ns`.
    """
    if ready_ns < spawned_ns:
        raise ValueError(f"ready_ns {ready_ns} is before spawned_ns {spawned_ns}")
    own_from = min((s.t_ns for s in steps if s.wait is Wait.WARM), default=ready_ns)
    turns = [t for t in _turns(lines, marks) if spawned_ns <= t.t_ns < own_from]
    turns += [_Turn(s.t_ns, s.wait, None, s.label) for s in steps if s.t_ns < ready_ns]
    turns.sort(key=lambda t: t.t_ns)
    phases = tuple(_phases(spawned_ns, ready_ns, turns))
    return Start(
        replica=replica,
        stage=stage,
        spawned_ns=spawned_ns,
        ready_ns=ready_ns,
        phases=phases,
        preparedness=preparedness or _preparedness(phases),
        gap=largest_gap(lines, spawned_ns, own_from),
    )


def _preparedness(phases: Sequence[Phase]) -> Preparedness:
    fetched = any(phase.wait is Wait.FETCH for phase in phases)
    return Preparedness.WARM_NODE if fetched else Preparedness.LOCAL_WEIGHTS


class MarkReader:
    """Recognises marks line by line, so that a running start can show its state."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._left = list(marks)

    def match(self, text: str) -> tuple[Mark, str] | None:
        """The mark that this line matches, and what it said; each mark is used once."""
        for mark in self._left:
            found = mark.pattern.search(text)
            if found:
                if not mark.repeats:
                    self._left.remove(mark)
                return mark, said(text[found.start() :])
        return None


def _turns(lines: Iterable[Line], marks: Sequence[Mark]) -> Iterator[_Turn]:
    reader = MarkReader(marks)
    for line in lines:
        matched = reader.match(line.text)
        if matched:
            mark, label = matched
            yield _Turn(line.t_ns, mark.then, mark.ended, label, _lasted_ns(line.text))


LASTED = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|secs?|seconds)\b")


def _lasted_ns(text: str) -> int | None:
    """The last duration that a line names."""
    found = LASTED.findall(text)
    if not found:
        return None
    number, unit = found[-1]
    return round(float(number) * (1e6 if unit == "ms" else 1e9))


def _phases(start_ns: int, end_ns: int, turns: Sequence[_Turn]) -> Iterator[Phase]:
    wait, label, since_ns = Wait.INIT, "spawn", start_ns
    for i, turn in enumerate(turns):
        t_ns = max(since_ns, min(turn.t_ns, end_ns))
        if turn.ended is not None and (i > 0 or turn.lasted_ns is not None):
            began_ns = since_ns if turn.lasted_ns is None else max(since_ns, t_ns - turn.lasted_ns)
            if began_ns > since_ns:
                yield Phase(wait, label, since_ns, began_ns)
            since_ns, wait, label = began_ns, turn.ended, turn.label
        if t_ns > since_ns:
            yield Phase(wait, label, since_ns, t_ns)
        since_ns = t_ns
        wait, label = turn.then or wait, turn.label
    if end_ns > since_ns or start_ns == end_ns:
        yield Phase(wait, label, since_ns, end_ns)


def largest_gap(lines: Iterable[Line], start_ns: int, end_ns: int) -> Gap | None:
    """The longest silence between `start_ns` and `end_ns`; None for an empty interval."""
    largest: Gap | None = None
    since_ns, after = start_ns, "spawn"
    inside = [line for line in lines if start_ns <= line.t_ns < end_ns]
    for t_ns, text in [*((line.t_ns, line.text) for line in inside), (end_ns, "")]:
        gap = Gap(since_ns, t_ns, after)
        if gap.duration_s > 0 and (largest is None or gap.duration_s > largest.duration_s):
            largest = gap
        since_ns, after = max(since_ns, t_ns), said(text)
    return largest


def said(text: str) -> str:
    """What a log line says, without colours and the logger's prefix, cut to a label's length."""
    plain = ANSI.sub("", text).strip()
    plain = PREFIX.sub("", plain, count=1) or plain
    return plain if len(plain) <= LABEL_LENGTH else plain[: LABEL_LENGTH - 1] + "…"
