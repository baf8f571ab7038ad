"""Raw samples of an experiment: JSON lines, one after each run, valid whenever the writer dies."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from preroll.errors import InputError

FORMAT = "preroll ablation 1"


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


@dataclass(frozen=True, slots=True)
class Header:
    """What was asked; a file is gone on with only for the same."""

    what: dict[str, Any]
    machine: dict[str, str]


class RawFile:
    """The file of one experiment. Every line is written whole and reaches the disk at once."""

    def __init__(self, path: Path, header: Header) -> None:
        """Makes a new file. Raises InputError when there is one already or it cannot be made."""
        self.path, self.header, self.runs = path, header, list[Run]()
        flags = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY
        try:
            self._file = os.open(path, flags, 0o644)
        except FileExistsError:
            raise InputError(f"{path}: exists already; go on with --resume {path}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        self._write({"format": FORMAT, "what": header.what, "machine": header.machine})

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Opens an earlier file to append to it; a last line that was cut off is removed."""
        header, runs, length = _read(path)
        raw = cls.__new__(cls)
        raw.path, raw.header, raw.runs = path, header, runs
        raw._file = os.open(path, os.O_APPEND | os.O_WRONLY)
        os.ftruncate(raw._file, length)
        return raw

    def append(self, run: Run) -> None:
        self.runs.append(run)
        self._write(dataclasses.asdict(run))

    def _write(self, data: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(data, separators=(",", ":")).encode() + b"\n")
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> tuple[Header, list[Run]]:
    """The header and every whole line. Raises InputError when it is another kind of file."""
    header, runs, _ = _read(path)
    return header, runs


def _read(path: Path) -> tuple[Header, list[Run], int]:
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
        runs = [Run(**{**line, "arm": Arm(line["arm"])}) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a file of preroll ablate ({error!r})") from None
    return header, runs, len(whole)
