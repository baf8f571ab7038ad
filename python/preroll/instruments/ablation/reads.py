"""What a process tree used: what it made a storage device read is the proof of a cold or a warm
start; its processor time is what a busy machine does not change.

The kernel counts, per process with its threads and the children it has waited for, the bytes that
it caused to be read from a block device, and the page faults that had to wait for one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC = Path("/proc")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reads:
    """Of a whole tree, from spawn until it was asked."""

    read_bytes: int
    major_faults: int
    cpu_s: float = 0.0


def tree_of(holder_pid: int) -> list[int]:
    """The holder and everything below it. Empty when it has gone."""
    try:
        holder = psutil.Process(holder_pid)
        return [holder_pid, *(child.pid for child in holder.children(recursive=True))]
    except psutil.Error:
        return []


def reads_of(pids: Iterable[int]) -> Reads:
    """Sums over processes; one that ended meanwhile is in its parent's figures."""
    total_bytes = total_faults = total_ticks = 0
    for pid in pids:
        total_bytes += _read_bytes(pid)
        faults, ticks = _faults_and_ticks(pid)
        total_faults += faults
        total_ticks += ticks
    return Reads(total_bytes, total_faults, total_ticks / TICKS_A_SECOND)


def _read_bytes(pid: int) -> int:
    try:
        text = (PROC / f"{pid}/io").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    return 0


def _faults_and_ticks(pid: int) -> tuple[int, int]:
    """Major faults and processor time, its own and those of the children that it has waited for
    (fields 12 and 13, 14 to 17 of stat)."""
    try:
        text = (PROC / f"{pid}/stat").read_text()
    except OSError:
        return 0, 0
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[9]) + int(fields[10]), sum(map(int, fields[11:15]))
