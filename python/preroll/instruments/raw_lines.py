"""Raw samples as JSON lines: a header, then one line after each sample, valid whenever the writer
dies."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from preroll.errors import InputError

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class Header:
    """What was asked; a file is gone on with only for the same."""

    what: dict[str, Any]
    machine: dict[str, str] = field(default_factory=dict)


class RawLines(ABC, Generic[Sample]):
    """The file of one experiment. Every line is written whole and reaches the disk at once."""

    format: ClassVar[str]
    command: ClassVar[str]

    def __init__(self, path: Path, header: Header) -> None:
        """Makes a new file. Raises InputError when there is one already or it cannot be made."""
        self.path, self.header, self.samples = path, header, list[Sample]()
        flags = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY
        try:
            self._file = os.open(path, flags, 0o644)
        except FileExistsError:
            raise InputError(f"{path}: exists already; go on with --resume {path}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        self._write({"format": self.format, "what": header.what, "machine": header.machine})

    @staticmethod
    @abstractmethod
    def to_json(sample: Sample) -> dict[str, Any]: ...

    @staticmethod
    @abstractmethod
    def from_json(line: dict[str, Any]) -> Sample:
        """Raises KeyError, ValueError or TypeError for anything else than `to_json` made."""

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Opens an earlier file to append to it; a last line that was cut off is removed."""
        header, samples, length = cls._read(path)
        raw = cls.__new__(cls)
        raw.path, raw.header, raw.samples = path, header, samples
        raw._file = os.open(path, os.O_APPEND | os.O_WRONLY)
        os.ftruncate(raw._file, length)
        return raw

    @classmethod
    def read(cls, path: Path) -> tuple[Header, list[Sample]]:
        """The header and every whole line. Raises InputError when it is another kind of file."""
        header, samples, _ = cls._read(path)
        return header, samples

    @classmethod
    def _read(cls, path: Path) -> tuple[Header, list[Sample], int]:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        whole = data[: data.rfind(b"\n") + 1]
        try:
            head, *lines = [json.loads(line) for line in whole.splitlines()]
            if head["format"] != cls.format:
                raise ValueError(head["format"])
            header = Header(head["what"], head["machine"])
            samples = [cls.from_json(line) for line in lines]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: not a file of {cls.command} ({error!r})") from None
        return header, samples, len(whole)

    def append(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._write(self.to_json(sample))

    def _write(self, data: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(data, separators=(",", ":")).encode() + b"\n")
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)
