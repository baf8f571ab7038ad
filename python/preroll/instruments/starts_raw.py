"""Raw samples of launches, one line after each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from preroll.core import Gap, Phase, Preparedness, Start, Wait
from preroll.instruments.raw_lines import RawLines


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch: a start, or the reason why there was none. `date`: ISO 8601, UTC."""

    run: int
    date: str
    start: Start | None = None
    failure: str | None = None


def start_to_json(start: Start) -> dict[str, Any]:
    return {
        "replica": start.replica,
        "stage": start.stage,
        "spawned_ns": start.spawned_ns,
        "ready_ns": start.ready_ns,
        "preparedness": start.preparedness,
        "phases": [[p.wait, p.label, p.start_ns, p.end_ns] for p in start.phases],
        "gap": start.gap and [start.gap.start_ns, start.gap.end_ns, start.gap.after],
    }


def start_from_json(data: dict[str, Any]) -> Start:
    """Raises KeyError, ValueError or TypeError for anything else than `start_to_json` made."""
    return Start(
        replica=data["replica"],
        stage=data["stage"],
        spawned_ns=data["spawned_ns"],
        ready_ns=data["ready_ns"],
        phases=tuple(Phase(Wait(w), label, s, e) for w, label, s, e in data["phases"]),
        preparedness=Preparedness(data["preparedness"]),
        gap=Gap(*data["gap"]) if data["gap"] else None,
    )


class RawFile(RawLines[Launched]):
    format = "preroll starts 1"
    command = "preroll starts"

    @staticmethod
    def to_json(sample: Launched) -> dict[str, Any]:
        start = start_to_json(sample.start) if sample.start else None
        return {"run": sample.run, "date": sample.date, "start": start, "failure": sample.failure}

    @staticmethod
    def from_json(line: dict[str, Any]) -> Launched:
        start = start_from_json(line["start"]) if line["start"] else None
        return Launched(line["run"], line["date"], start, line["failure"])
