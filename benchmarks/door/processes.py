"""CPU time, memory and ends of process trees, read from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path


def tree(pid: int) -> list[int]:
    """The process and all its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        todo += children.get(current, [])
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of the tree so far.

    From schedstat (nanoseconds) of every thread; where the kernel has none, utime + stime (ticks).
    """
    total_ns = 0
    for process in tree(pid):
        for task in Path(f"/proc/{process}/task").glob("*"):
            with contextlib.suppress(OSError):
                total_ns += int((task / "schedstat").read_text().split()[0])
    if total_ns:
        return total_ns / 1e9
    ticks = 0
    for process in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory of the tree in MB (10^6 bytes)."""
    pages = 0
    for process in tree(pid):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def pin(pid: int, cpus: set[int]) -> None:
    """Moves every thread of the tree to `cpus`."""
    for process in tree(pid):
        for task in Path(f"/proc/{process}/task").glob("*"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(task.name), cpus)


def kill_tree(pid: int, grace_s: float = 3.0) -> None:
    """Ends the tree: SIGTERM, then SIGKILL to what is left of it."""
    members = tree(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(_alive(p) for p in members):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)
    for process in members:
        if _alive(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
