"""Raw samples of launches: JSON lines, one after each launch, valid whenever the writer dies."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preroll.core import Gap, Phase, Preparedness, Start, Wait
from preroll.errors import InputError

FORMAT = "preroll starts 1"


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch: a start, or the reason why there was none. `date`: ISO 8601, UTC."""

    run: int
    date: str
    start: Start | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """What was launched; a file is resumed only with the same."""

    what: dict[str, Any]
    machine: dict[str, str] = field(default_factory=dict)


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


class RawFile:
    """The file of one experiment. Every line is written whole and reaches the disk at once."""

    def __init__(self, path: Path, header: Header) -> None:
        """Makes a new file. Raises InputError when there is one already or it cannot be made."""
        self.path = path
        self.header = header
        self.launches: list[Launched] = []
        try:
            self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY, 0o644)
        except FileExistsError:
            raise InputError(f"{path}: exists already; go on with --resume {path}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        self._write({"format": FORMAT, "what": header.what, "machine": header.machine})

    @classmethod
    def resume(cls, path: Path) -> RawFile:
        """Opens an earlier file to append to it; a last line that was cut off is removed."""
        header, launches, length = _read(path)
        raw = cls.__new__(cls)
        raw.path, raw.header, raw.launches = path, header, launches
        raw._file = os.open(path, os.O_APPEND | os.O_WRONLY)
        os.ftruncate(raw._file, length)
        return raw

    def append(self, launched: Launched) -> None:
        self.launches.append(launched)
        start = start_to_json(launched.start) if launched.start else None
        line = {"run": launched.run, "date": launched.date, "start": start}
        self._write({**line, "failure": launched.failure})

    def _write(self, data: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(data, separators=(",", ":")).encode() + b"\n")
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> tuple[Header, list[Launched]]:
    """The header and every whole line. Raises InputError when it is another kind of file."""
    header, launches, _ = _read(path)
    return header, launches


def _read(path: Path) -> tuple[Header, list[Launched], int]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    whole = data[: data.rfind(b"\n") + 1]
    try:
        head, *lines = [json.loads(line) for line in whole.splitlines()]
        if head["format"] != FORMAT:
            raise ValueError(head["format"])
        header = Header(head["what"], head["machine"])
        launches = [_launched(line) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a file of preroll starts ({error!r})") from None
    return header, launches, len(whole)


def _launched(line: dict[str, Any]) -> Launched:
    start = start_from_json(line["start"]) if line["start"] else None
    return Launched(line["run"], line["date"], start, line["failure"])
