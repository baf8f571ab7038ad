"""Profiles as JSON files: written after each run, read again by diff, baseline and exports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from preroll.errors import InputError
from preroll.instruments.startup.base import (
    Cause,
    FileCost,
    Function,
    FunctionTime,
    Gap,
    ImportCost,
    Lever,
    Outcome,
    ProcessTime,
    Profile,
    Segment,
    Slice,
)

FORMAT = "preroll profile 1"
# A picture has a few thousand columns; a start of minutes has a million slices.
MAX_SLICES = 20_000
# So many kinds of slices (cause, process, module) are told apart within one column.
MAX_KINDS = 6


def coarse(slices: Sequence[Slice], limit: int = MAX_SLICES) -> list[Slice]:
    """At most about `limit` slices that still tile the interval, with the same sums by cause.

    Within an nth of the interval order is lost, and crumbs of a cause are joined whatever process
    and module they belong to.
    """
    if len(slices) <= limit:
        return list(slices)
    least_ns = (slices[-1].end_ns - slices[0].start_ns) * (MAX_KINDS + 1) // limit
    found: list[Slice] = []
    group: list[Slice] = []
    for one in slices:
        group.append(one)
        if one.end_ns - group[0].start_ns >= least_ns:
            found += _joined(group)
            group = []
    return found + _joined(group)


def _joined(group: Sequence[Slice]) -> list[Slice]:
    """One slice per cause, process and module that matter here, in the order of their coming."""
    kinds: dict[tuple[Cause, int, str | None, int], list[Slice]] = {}
    for one in group:
        # Stacks that are equal are one object.
        kinds.setdefault((one.cause, one.pid, one.module, id(one.stack)), []).append(one)
    ranked = sorted(kinds, key=lambda kind: sum(one.seconds for one in kinds[kind]), reverse=True)
    kept = set(ranked[:MAX_KINDS])
    sums: dict[object, list[Slice]] = {}
    for kind, same in kinds.items():
        sums.setdefault(kind if kind in kept else kind[0], []).extend(same)
    found, now_ns = [], group[0].start_ns if group else 0
    for same in sums.values():
        end_ns = now_ns + sum(one.end_ns - one.start_ns for one in same)
        longest = max(same, key=lambda one: one.end_ns - one.start_ns)
        cold_bytes = sum(one.cold_bytes for one in same)
        found.append(replace(longest, start_ns=now_ns, end_ns=end_ns, cold_bytes=cold_bytes))
        now_ns = end_ns
    return found


class _Stacks:
    """Every stack and every frame once."""

    def __init__(self) -> None:
        self.frames: dict[Function, int] = {}
        self.numbers: dict[tuple[int, ...], int] = {}

    def number(self, stack: Sequence[Function] | None) -> int | None:
        if stack is None:
            return None
        frames = tuple(self.frames.setdefault(one, len(self.frames)) for one in stack)
        return self.numbers.setdefault(frames, len(self.numbers))


def to_json(profile: Profile) -> dict[str, Any]:
    """`slices` are rows [start, end (ns since spawn), cause, tid, pid, depth, file, cold bytes,
    module, stack]; a stack is one of `stacks`, whose numbers are of `frames` [name, file, line]."""
    data = {"format": FORMAT, **asdict(replace(profile, slices=()))}
    zero = profile.spawned_ns
    stacks = _Stacks()
    data["slices"] = [
        [
            *(one.start_ns - zero, one.end_ns - zero, one.cause, one.tid, one.pid),
            *(one.depth, one.file, one.cold_bytes, one.module, stacks.number(one.stack)),
        ]
        for one in coarse(profile.slices)
    ]
    data["frames"], data["stacks"] = list(stacks.frames), list(stacks.numbers)
    data["imports"] = [asdict(cost) for cost in profile.imports.values()]
    data["segments"] = profile.segments
    return data


def write(profile: Profile, path: Path) -> None:
    """Raises InputError when the file cannot be written."""
    try:
        path.write_text(json.dumps(to_json(profile), separators=(",", ":")) + "\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def read(path: Path) -> Profile:
    """Raises InputError when it is missing or something else than `write` wrote."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a profile of preroll (not text)") from None
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}")
        return from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a profile of preroll ({error!r})") from None


def from_json(data: dict[str, Any]) -> Profile:
    """Raises KeyError, ValueError or TypeError for anything else than `to_json` made."""
    zero = data["spawned_ns"]
    frames = [Function(*one) for one in data.get("frames", ())]
    stacks = [tuple(frames[number] for number in one) for one in data.get("stacks", ())]

    def slice_of(start: int, end: int, cause: str, *rest: Any) -> Slice:
        one = Slice(zero + start, zero + end, Cause(cause), *rest[:6])
        number = rest[6] if len(rest) > 6 else None
        return one if number is None else replace(one, stack=stacks[number])

    slices = tuple(slice_of(*row) for row in data["slices"])
    return Profile(
        command=tuple(data["command"]),
        outcome=Outcome(data["outcome"]),
        message=data["message"],
        mode=data["mode"],
        reason=data["reason"],
        total_s=data["total_s"],
        date=data["date"],
        causes=data["causes"],
        labels=tuple(Segment(**one) for one in data["labels"]),
        imports={one["package"]: ImportCost(**one) for one in data["imports"]},
        functions=tuple(FunctionTime(**one) for one in data.get("functions", ())),
        gap=Gap(**data["gap"]) if data["gap"] else None,
        files=tuple(FileCost(**one) for one in data["files"]),
        processes=tuple(ProcessTime(**one) for one in data["processes"]),
        levers=tuple(Lever(**one) for one in data["levers"]),
        notes=tuple(data["notes"]),
        lines=tuple((t_s, text) for t_s, text in data["lines"]),
        slices=slices,
        cpu_s=data["cpu_s"],
        spawned_ns=zero,
    )
