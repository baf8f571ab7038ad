"""The state that a run starts from, brought about before it and proved after it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from preroll.errors import InputError
from preroll.instruments.ablation import files, pages
from preroll.instruments.ablation.reads import Reads
from preroll.quantiles import median

# What a warm start may have read all the same: a directory block or two that the kernel had
# evicted, or what a slow device delivers in a hundredth of the start.
WARM_ALLOWED_BYTES = 256 << 10
WARM_ALLOWED_SHARE = 0.01
SLOW_DEVICE_BYTES_S = 100e6
# How much more may be resident before a cold run than right after the first drop.
FLOOR_SLACK_BYTES = 1 << 20
FLOOR_SLACK_SHARE = 0.05
# A cold run of the same command reads the same bytes; less means that something was resident.
COLD_LEAST_SHARE = 0.8


class Cache(StrEnum):
    """`as-is`: nothing is done and nothing proved; what was read is recorded."""

    COLD = "cold"
    WARM = "warm"
    AS_IS = "as-is"


class Drop(StrEnum):
    """What is dropped before a cold run: the command's files, or all of the machine (root)."""

    FILES = "files"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was resident of the command's files before a run, and what its tree then read in a
    start of `total_s`."""

    resident_bytes: int | None
    reads: Reads
    total_s: float


class Keeper:
    """Brings about the state before each run and judges the evidence after it."""

    def __init__(self, cache: Cache, drop: Drop = Drop.FILES) -> None:
        if drop is Drop.ALL and os.geteuid() != 0:
            raise InputError(
                "--drop all: only root may drop the whole page cache; use --drop files"
            )
        self.cache = cache
        self._drop = drop
        self._files: list[str] = []
        self._floor_bytes: int | None = None
        self._read_before: dict[str, list[int]] = {}

    @property
    def num_files(self) -> int:
        return len(self._files)

    @property
    def learns_twice(self) -> bool:
        """Whether a second rehearsal is needed to know the files."""
        return self.cache is Cache.COLD

    def learn_candidates(
        self, seen: set[str], argv: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> None:
        """After a first run: every file that such a run may read is dropped from now on."""
        if self.cache is Cache.COLD:
            found = files.candidates(seen, argv, cwd, env.get("PYTHONPATH", ""))
            self._files = sorted({*self._files, *found})

    def learn_files(self) -> None:
        """After a run from dropped candidates: those that it left untouched are forgotten."""
        if self.cache is Cache.COLD:
            self._files = files.read_by_a_run(self._files)

    def prepare(self) -> int | None:
        """Makes the state; returns the bytes of the command's files that are resident still."""
        if self.cache is not Cache.COLD:
            return None
        if self._drop is Drop.ALL:
            pages.drop_everything()
        else:
            pages.drop(self._files)
        resident = pages.total_resident(self._files)
        if self._floor_bytes is None or resident < self._floor_bytes:
            self._floor_bytes = resident
        return resident

    def why_not_proved(self, arm: str, evidence: Evidence) -> str | None:
        """Why a run did not start from the state that was asked for; None when it did."""
        reads = evidence.reads
        if self.cache is Cache.AS_IS:
            return None
        if self.cache is Cache.WARM:
            share_bytes = WARM_ALLOWED_SHARE * evidence.total_s * SLOW_DEVICE_BYTES_S
            if reads.read_bytes <= max(WARM_ALLOWED_BYTES, share_bytes):
                return None
            return f"not warm: its processes read {mib(reads.read_bytes)} from a device"
        reason = self._not_cold(arm, evidence)
        if reason is None:
            self._read_before.setdefault(arm, []).append(reads.read_bytes)
        return reason

    def _not_cold(self, arm: str, evidence: Evidence) -> str | None:
        reads, floor, resident = evidence.reads, self._floor_bytes or 0, evidence.resident_bytes
        allowed = floor * (1 + FLOOR_SLACK_SHARE) + FLOOR_SLACK_BYTES
        if resident is not None and resident > allowed:
            more = mib(resident - floor)
            return f"not cold: {more} of its files could not be dropped, another process uses them"
        if reads.read_bytes == 0:
            return "not cold: its processes read nothing from a device"
        before = self._read_before.get(arm)
        if before and reads.read_bytes < COLD_LEAST_SHARE * median(before):
            usual = mib(round(median(before)))
            return f"not cold: read {mib(reads.read_bytes)}, earlier runs {usual}"
        return None


def mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
