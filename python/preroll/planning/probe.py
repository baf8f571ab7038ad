"""This machine, measured: memory bandwidth and matrix–vector rate, in about two seconds."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

BLOCK = 256 << 20
"""Bytes copied per round: above every last-level cache on sale."""
ROUNDS = 5
ROWS, COLUMNS = 8192, 8192
"""A 268 MB fp32 matrix: one layer's worth, read once from memory per product."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Rates in bytes/s, medians of ROUNDS. `copy`: read plus write of one thread's memory copy;
    `gemv`: matrix bytes read per second by fp32 matrix–vector products, None without numpy."""

    machine: str
    date: str
    copy_bytes_s: float
    gemv_bytes_s: float | None

    def as_dict(self) -> dict[str, float | str | None]:
        return asdict(self)

    def text(self) -> str:
        gemv = "needs numpy (pip install 'preroll[plan]')"
        if self.gemv_bytes_s is not None:
            gemv = f"{self.gemv_bytes_s / 1e9:.3g} GB/s of fp32 weights"
        return (
            f"{self.machine}, measured {self.date}\n"
            f"   memory copy, one thread    {self.copy_bytes_s / 1e9:.3g} GB/s read plus write\n"
            f"   matrix–vector, all threads {gemv}\n"
            f"   so a decode step reads at most {self.read_bytes_s / 1e9:.3g} GB/s of weights"
        )

    @property
    def read_bytes_s(self) -> float:
        """The best measured rate of reading memory; a copy reads half of what it moves."""
        return self.gemv_bytes_s or self.copy_bytes_s / 2


def measure() -> Probe:
    """Measure now. Ignores NUMA and other load: on a busy machine it reads low."""
    return Probe(_machine(), f"{datetime.now(UTC):%Y-%m-%d}", _copy(), _gemv())


def _machine() -> str:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return f"{cpu}, {os.cpu_count()} CPUs"


def _rate(work: Callable[[], object], num_bytes: int) -> float:
    work()  # touches every page once: the first round would time page faults
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return num_bytes / max(median(times), 1e-9)


def _copy() -> float:
    source, target = bytearray(BLOCK), memoryview(bytearray(BLOCK))

    def copy() -> None:
        target[:] = source

    return _rate(copy, 2 * BLOCK)


def _gemv() -> float | None:
    try:
        import numpy as np
    except ImportError:
        return None
    matrix = np.ones((ROWS, COLUMNS), dtype=np.float32)
    vector = np.ones(COLUMNS, dtype=np.float32)
    out = np.empty(ROWS, dtype=np.float32)
    return _rate(lambda: np.dot(matrix, vector, out=out), matrix.nbytes)
