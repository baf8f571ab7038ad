"""Sums over slices: by cause, by label, by file, by process. Each slice is counted once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from preroll.instruments.startup import honesty
from preroll.instruments.startup.base import (
    Cause,
    FileCost,
    Gap,
    ProcessTime,
    Segment,
    Slice,
)
from preroll.instruments.startup.labels import Label, Said
from preroll.instruments.startup.load_graph import package_of

MAX_FILES = 30
MAX_PROCESSES = 30
# A process that the start waited for less than this share of it is a crumb.
MIN_PROCESS_SHARE = 0.001


def by_cause(slices: Sequence[Slice]) -> dict[str, float]:
    """Seconds by cause, in the order of `Cause`; causes that took no time are left out."""
    totals: dict[Cause, int] = defaultdict(int)
    for one in slices:
        totals[one.cause] += one.end_ns - one.start_ns
    return {cause.value: totals[cause] / 1e9 for cause in Cause if totals[cause]}


def cut(slices: Sequence[Slice], from_ns: int, to_ns: int) -> Iterator[Slice]:
    """The parts of `slices` (in order, contiguous) within the interval."""
    low, high = 0, len(slices)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if slices[middle].end_ns <= from_ns else (low, middle)
    for one in slices[low:]:
        if one.start_ns >= to_ns:
            return
        start_ns, end_ns = max(one.start_ns, from_ns), min(one.end_ns, to_ns)
        if (start_ns, end_ns) == (one.start_ns, one.end_ns):
            yield one
        elif end_ns > start_ns:
            yield Slice(
                *(start_ns, end_ns, one.cause, one.tid, one.pid, one.depth, one.file, 0),
                *(one.module, one.stack),
            )


def facts(part: Sequence[Slice]) -> honesty.Facts:
    packages: dict[str, int] = defaultdict(int)
    for one in part:
        if one.module:
            packages[package_of(one.module)] += one.end_ns - one.start_ns
    return honesty.Facts(
        total_s=sum(one.end_ns - one.start_ns for one in part) / 1e9,
        causes=by_cause(part),
        import_s=sum(packages.values()) / 1e9,
        top_package=max(packages, key=lambda name: packages[name]) if packages else "",
        cold_bytes=sum(one.cold_bytes for one in part),
    )


def segments(
    labels: Sequence[Label], slices: Sequence[Slice], spawned_ns: int, total_s: float
) -> Iterator[Segment]:
    """Each label with its causes, and with what contradicts its name."""
    causes = by_cause(slices)
    crowded = sum(causes.get(cause, 0.0) for cause in honesty.CROWDED) / (total_s or 1.0)
    for label in labels:
        bounds = (spawned_ns + round(s * 1e9) for s in (label.start_s, label.end_s))
        found = facts(list(cut(slices, *bounds)))
        claim = label.name if label.is_claimed else ""
        yield Segment(
            name=label.name,
            start_s=label.start_s,
            end_s=label.end_s,
            causes=found.causes,
            wait=label.wait,
            lie=honesty.lie(claim, found, total_s, crowded) if claim else None,
        )


def gap_of(
    lines: Sequence[Said], slices: Sequence[Slice], spawned_ns: int, total_s: float
) -> Gap | None:
    """The longest stretch without a line; None when there was no time at all."""
    times = [*((line.t_s, line.text) for line in lines if line.t_s < total_s), (total_s, "")]
    longest, since_s, after = (0.0, 0.0, ""), 0.0, "spawn"
    for t_s, text in times:
        if t_s - since_s > longest[1] - longest[0]:
            longest = (since_s, t_s, after)
        since_s, after = max(since_s, t_s), text
    if longest[1] <= longest[0]:
        return None
    bounds = [spawned_ns + round(s * 1e9) for s in longest[:2]]
    return Gap(*longest, causes=by_cause(list(cut(slices, bounds[0], bounds[1]))))


def file_costs(slices: Sequence[Slice]) -> list[FileCost]:
    """Files by the time that the start waited for them, dearest first."""
    spent: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in slices:
        waits = one.cause in (Cause.READ, Cause.FAULT_IO, Cause.DISK)
        if one.file and (waits or one.cold_bytes):
            spent[one.file][0] += one.end_ns - one.start_ns if waits else 0
            spent[one.file][1] += one.cold_bytes
    found = [FileCost(path, ns / 1e9, cold) for path, (ns, cold) in spent.items()]
    return sorted(found, key=lambda file: -file.seconds)[:MAX_FILES]


def process_times(
    slices: Sequence[Slice], commands: Mapping[int, str], spawned_ns: int
) -> list[ProcessTime]:
    """Processes of the critical chain in the order in which they came upon it."""
    parts: dict[int, list[Slice]] = defaultdict(list)
    for one in slices:
        parts[one.pid].append(one)
    seconds = {pid: sum(one.seconds for one in some) for pid, some in parts.items()}
    least_s = MIN_PROCESS_SHARE * sum(seconds.values())
    dearest = sorted((p for p in parts if seconds[p] >= least_s), key=lambda p: -seconds[p])
    found = [
        ProcessTime(
            pid=pid,
            command=commands.get(pid, ""),
            start_s=(parts[pid][0].start_ns - spawned_ns) / 1e9,
            end_s=(parts[pid][-1].end_ns - spawned_ns) / 1e9,
            causes=by_cause(parts[pid]),
        )
        for pid in dearest[:MAX_PROCESSES]
        if pid
    ]
    return sorted(found, key=lambda process: process.start_s)
