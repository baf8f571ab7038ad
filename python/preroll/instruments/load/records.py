"""Raw records of a run, as written by the load client: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preroll.errors import InputError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Raw:
    """The requests of a run and its summary; `end` is None when the client was killed."""

    warmup: tuple[Json, ...]
    measured: tuple[Json, ...]
    end: Json | None

    @property
    def ok(self) -> tuple[Json, ...]:
        return tuple(r for r in self.measured if r["failure"] is None)


def read(path: Path) -> Raw:
    """Reads a file of records; a last line that was cut by a kill is left out.

    Raises InputError when the file cannot be read or is damaged before its last line.
    """
    try:
        lines = path.read_text().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    rows: list[Json] = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            if number == len(lines):
                break
            raise InputError(f"{path}:{number}: not a record; the file is damaged") from None
    requests = [r for r in rows if r.get("type") == "request"]
    return Raw(
        warmup=tuple(r for r in requests if r["warmup"]),
        measured=tuple(r for r in requests if not r["warmup"]),
        end=next((r for r in rows if r.get("type") == "end"), None),
    )
