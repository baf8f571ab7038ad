"""Raw samples of an experiment, one line after each run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from preroll.instruments.raw_lines import RawLines


class Arm(StrEnum):
    CONTROL = "control"
    VARIANT = "variant"


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `pair` 0 is a rehearsal. `total_s` is None when it did not get ready (`failure`);
    `discarded` says why a run that did is no sample. `phases_s`: seconds by the engine's label."""

    pair: int
    arm: Arm
    date: str
    total_s: float | None = None
    segments_s: dict[str, float] = field(default_factory=dict)
    phases_s: dict[str, float] = field(default_factory=dict)
    read_bytes: int = 0
    major_faults: int = 0
    resident_bytes: int | None = None
    discarded: str | None = None
    failure: str | None = None

    @property
    def is_sample(self) -> bool:
        return self.pair > 0 and self.total_s is not None and self.discarded is None


class RawFile(RawLines[Run]):
    format = "preroll ablation 1"
    command = "preroll ablate"

    @staticmethod
    def to_json(sample: Run) -> dict[str, Any]:
        return dataclasses.asdict(sample)

    @staticmethod
    def from_json(line: dict[str, Any]) -> Run:
        return Run(**{**line, "arm": Arm(line["arm"])})
