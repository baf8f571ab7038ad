"""Which Python function processor time went to: samples of running threads, laid over the slices.

A sample says which functions a thread was in at one moment. It stands for the processor time of
that thread around it, up to half the way to the thread's next sample.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from preroll.instruments.startup.base import Cause, Function, FunctionTime, Slice

Stack = tuple[Function, ...]
# A thread that runs is seen every 10 or 20 ms; a sample says nothing of what is farther away.
REACH_NS = 30_000_000
MAX_FUNCTIONS = 40


class Samples:
    """Samples by thread, in the order of time. Stacks are innermost first."""

    def __init__(self, rows: Iterable[tuple[int, int, Stack]] = ()) -> None:
        """`rows`: when (ns), which thread, in what."""
        found: dict[int, list[tuple[int, Stack]]] = defaultdict(list)
        for t_ns, tid, stack in rows:
            found[tid].append((t_ns, stack))
        self._times: dict[int, list[int]] = {}
        self._stacks: dict[int, list[Stack]] = {}
        for tid, some in found.items():
            some.sort(key=lambda one: one[0])
            self._times[tid] = [t_ns for t_ns, _ in some]
            self._stacks[tid] = [stack for _, stack in some]

    def between(self, tid: int, from_ns: int, to_ns: int) -> Iterator[tuple[int, int, Stack]]:
        """The stretches within the interval for which a sample stands, in order."""
        times = self._times.get(tid, ())
        for index in range(max(bisect_left(times, from_ns - REACH_NS) - 1, 0), len(times)):
            t_ns = times[index]
            low, high = t_ns - REACH_NS, t_ns + REACH_NS
            if low >= to_ns:
                return
            if index:
                low = max(low, (times[index - 1] + t_ns) // 2)
            if index + 1 < len(times):
                high = min(high, (t_ns + times[index + 1]) // 2)
            low, high = max(low, from_ns), min(high, to_ns)
            if low < high:
                yield low, high, self._stacks[tid][index]


def named(slices: Iterable[Slice], samples: Samples) -> Iterator[Slice]:
    """Slices on a processor cut where the sampled stack changes; all others as they are."""
    for one in slices:
        if one.cause is not Cause.CPU:
            yield one
            continue
        now_ns = one.start_ns
        for piece in _pieces(one, samples):
            yield piece
            now_ns = piece.end_ns
        if now_ns == one.start_ns:
            yield one
        elif now_ns < one.end_ns:
            yield replace(one, start_ns=now_ns, cold_bytes=0)


def _pieces(one: Slice, samples: Samples) -> Iterator[Slice]:
    """From the slice's start on without gaps; bytes are counted with the first."""
    waiting: Slice | None = None
    now_ns, cold_bytes = one.start_ns, one.cold_bytes
    for low, high, stack in samples.between(one.tid, one.start_ns, one.end_ns):
        if waiting is not None and low == waiting.end_ns and stack == waiting.stack:
            waiting = replace(waiting, end_ns=high)
            now_ns = high
            continue
        if waiting is not None:
            yield waiting
        if low > now_ns:
            yield replace(one, start_ns=now_ns, end_ns=low, cold_bytes=cold_bytes)
            cold_bytes = 0
        waiting = replace(one, start_ns=low, end_ns=high, stack=stack, cold_bytes=cold_bytes)
        now_ns, cold_bytes = high, 0
    if waiting is not None:
        yield waiting


def times(slices: Sequence[Slice]) -> tuple[FunctionTime, ...]:
    """Seconds on a processor by function, those that took most themselves first: the dearest of
    them, and the dearest with what they called."""
    own: dict[Function, int] = defaultdict(int)
    whole: dict[Function, int] = defaultdict(int)
    for one in slices:
        if one.stack and one.cause is Cause.CPU:
            length = one.end_ns - one.start_ns
            own[one.stack[0]] += length
            for function in set(one.stack):
                whole[function] += length
    chosen = {
        function
        for spent in (own, whole)
        for function in sorted(spent, key=lambda one: -spent[one])[:MAX_FUNCTIONS]
    }
    dearest = sorted(chosen, key=lambda function: (-own[function], -whole[function]))
    return tuple(
        FunctionTime(*function, own_s=own[function] / 1e9, whole_s=whole[function] / 1e9)
        for function in dearest
    )


def is_machinery(file: str) -> bool:
    """Frames between an import statement and the body of the module, some six each time."""
    return file.startswith("<frozen importlib")


def top(slices: Iterable[Slice]) -> tuple[Function, float] | None:
    """The function that took most of the processor time of `slices`, and its share of it."""
    own: dict[Function | None, int] = defaultdict(int)
    for one in slices:
        if one.cause is Cause.CPU:
            own[one.stack[0] if one.stack else None] += one.end_ns - one.start_ns
    known = [function for function in own if function is not None]
    if not known:
        return None
    dearest = max(known, key=lambda function: own[function])
    return dearest, own[dearest] / sum(own.values())


def place(file: str) -> str:
    """A source file without the folders that all of a kind share."""
    for shared in ("/site-packages/", "/dist-packages/", "/lib/python3."):
        _, found, rest = file.rpartition(shared)
        if found:
            return rest.partition("/")[2] if shared.endswith(".") else rest
    return "/".join(file.split("/")[-2:])
