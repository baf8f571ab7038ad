"""Which module's load a slice belongs to: its thread's own, else that of whoever waits for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from preroll.instruments.startup.base import Slice
from preroll.instruments.startup.hook import Load, PythonProcess
from preroll.instruments.startup.recorder import Thread

MAX_CLIMB = 16


@dataclass(frozen=True, slots=True)
class Stretch:
    """A thread was loading `module` of process `pid`, and nothing beneath it."""

    start_ns: int
    end_ns: int
    module: str
    pid: int


class Modules:
    """What each thread was loading when; contiguous loads of one thread never overlap."""

    def __init__(self, processes: Sequence[PythonProcess], end_ns: int) -> None:
        self.of_thread: dict[int, list[Stretch]] = {}
        for process in processes:
            threads: dict[int, list[Load]] = {}
            for load in process.loads:
                threads.setdefault(load.tid, []).append(load)
            for tid, loads in threads.items():
                found = self.of_thread.setdefault(tid, [])
                found.extend(_stretches(loads, process.pid, end_ns))
        self._starts = {
            tid: [stretch.start_ns for stretch in found] for tid, found in self.of_thread.items()
        }

    def between(self, tid: int, from_ns: int, to_ns: int) -> Iterator[Stretch]:
        """Stretches of `tid` that overlap the interval, in order."""
        found = self.of_thread.get(tid)
        if found is None:
            return
        for stretch in found[max(bisect_right(self._starts[tid], from_ns) - 1, 0) :]:
            if stretch.start_ns >= to_ns:
                return
            if stretch.end_ns > from_ns:
                yield stretch


def _stretches(loads: Sequence[Load], pid: int, end_ns: int) -> Iterator[Stretch]:
    """Loads as nested intervals, cut so that each moment has the innermost one that worked."""
    open_loads: list[tuple[str, int]] = []
    now_ns = 0

    def until(t_ns: int) -> Iterator[Stretch]:
        nonlocal now_ns
        if open_loads and t_ns > now_ns and open_loads[-1][0]:
            yield Stretch(now_ns, t_ns, open_loads[-1][0], pid)
        now_ns = max(now_ns, t_ns)

    for load in loads:
        while open_loads and open_loads[-1][1] <= load.start_ns:
            yield from until(open_loads[-1][1])
            open_loads.pop()
        yield from until(load.start_ns)
        # A search that found nothing is the cost of whoever searched.
        outer = open_loads[-1][0] if open_loads else load.importer
        name = outer if load.has_failed else load.name
        open_loads.append((name, load.end_ns if load.end_ns is not None else end_ns))
    while open_loads:
        yield from until(open_loads[-1][1])
        open_loads.pop()


def attribute(
    slices: Iterable[Slice], modules: Modules, threads: Mapping[int, Thread]
) -> Iterator[tuple[Slice, int]]:
    """Each slice cut where modules change, with the process whose load it belongs to (0: none)."""
    for one in slices:
        now_ns = one.start_ns
        for stretch in _along(modules, threads, one.tid, one.start_ns, one.end_ns, MAX_CLIMB):
            start_ns, end_ns = max(now_ns, stretch.start_ns), min(one.end_ns, stretch.end_ns)
            if start_ns > now_ns:
                yield replace(one, start_ns=now_ns, end_ns=start_ns, cold_bytes=0), 0
            if end_ns > start_ns:
                piece = replace(one, start_ns=start_ns, end_ns=end_ns, module=stretch.module)
                # Bytes are counted once, however often the slice is cut.
                is_first = start_ns == one.start_ns
                yield replace(piece, cold_bytes=one.cold_bytes if is_first else 0), stretch.pid
                now_ns = end_ns
        if now_ns == one.start_ns:
            yield one, 0
        elif now_ns < one.end_ns:
            yield replace(one, start_ns=now_ns, cold_bytes=0), 0


def _along(
    modules: Modules, threads: Mapping[int, Thread], tid: int, from_ns: int, to_ns: int, climb: int
) -> Iterator[Stretch]:
    """The thread's own stretches; between them those of the thread that created it, and so on."""
    parent = threads[tid].parent if tid in threads and climb else 0
    if not parent and not modules.of_thread.get(tid):
        return
    now_ns = from_ns
    for stretch in modules.between(tid, from_ns, to_ns):
        if parent and stretch.start_ns > now_ns:
            yield from _along(modules, threads, parent, now_ns, stretch.start_ns, climb - 1)
        yield stretch
        now_ns = stretch.end_ns
    if parent and now_ns < to_ns:
        for stretch in _along(modules, threads, parent, now_ns, to_ns, climb - 1):
            yield replace(stretch, start_ns=max(stretch.start_ns, now_ns))
