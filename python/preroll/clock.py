"""Clocks: durations come from the monotonic one, schedules from the wall, tests from hand."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Where time comes from: `monotonic_ns` is CLOCK_MONOTONIC, `wall_s` seconds since the epoch.

    The two are never subtracted from each other: the wall clock may jump by years.
    """

    def monotonic_ns(self) -> int: ...

    def wall_s(self) -> float: ...


class SystemClock:
    """The clocks of this machine."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_s(self) -> float:
        return time.time()


class ManualClock:
    """A clock that moves only when told to; its two times move apart with `jump_wall`."""

    def __init__(self, monotonic_ns: int = 1_000_000_000, wall_s: float = 1_800_000_000.0) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_s = wall_s

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def wall_s(self) -> float:
        return self._wall_s

    def advance(self, seconds: float) -> None:
        self._monotonic_ns += round(seconds * 1e9)
        self._wall_s += seconds

    def jump_wall(self, seconds: float) -> None:
        self._wall_s += seconds


@cache
def boot_id() -> str:
    """Which boot the monotonic clock counts from; empty where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
