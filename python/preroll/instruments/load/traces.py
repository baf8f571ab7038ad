"""Arrivals to replay: a CSV with times and token counts, or the door's access log."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from preroll.errors import InputError

TIMES = ("at_s", "TIMESTAMP", "timestamp", "arrived_at")
INPUTS = ("ContextTokens", "input_tokens", "num_prefill_tokens", "prompt_tokens")
OUTPUTS = ("GeneratedTokens", "output_tokens", "num_decode_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One arrival: seconds from the first, tokens in and out (None: not in the trace)."""

    at_s: float
    input_tokens: int | None
    output_tokens: int | None


def read_trace(path: Path, limit: int | None = None, speed: float = 1.0) -> list[Arrival]:
    """The first `limit` arrivals in order of time, `speed` times as fast.

    Raises InputError for a file that cannot be read or has no column of times.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--replay {path}: {error}") from None
    rows = _json_rows(text, path) if text.lstrip().startswith("{") else _csv_rows(text)
    if not rows:
        raise InputError(f"--replay {path}: no rows")
    found = [_arrival(row, path) for row in rows]
    found.sort(key=lambda a: a.at_s)
    first = found[0].at_s
    return [
        Arrival((a.at_s - first) / speed, a.input_tokens, a.output_tokens) for a in found[:limit]
    ]


def _csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def _json_rows(text: str, path: Path) -> list[dict[str, str]]:
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            rows.append({k: str(v) for k, v in json.loads(line).items()})
        except (ValueError, AttributeError):
            raise InputError(f"--replay {path}:{number}: not a JSON object") from None
    return rows


def _arrival(row: dict[str, str], path: Path) -> Arrival:
    name = next((n for n in TIMES if n in row), None)
    if name is None and "t_ns" in row:
        return Arrival(int(row["t_ns"]) / 1e9, None, _count(row, OUTPUTS))
    if name is None:
        have = ", ".join(row)
        raise InputError(f"--replay {path}: columns {have}; allowed times: {', '.join(TIMES)}")
    return Arrival(_seconds(row[name], path), _count(row, INPUTS), _count(row, OUTPUTS))


def _seconds(text: str, path: Path) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        # Seven digits of a second are common in such traces; the parser takes six.
        head, dot, digits = text.partition(".")
        return datetime.fromisoformat(head + dot + digits[:6]).timestamp()
    except ValueError:
        raise InputError(f"--replay {path}: '{text}' is neither seconds nor a date") from None


def _count(row: dict[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        if row.get(name, "").isdigit():
            return int(row[name])
    return None
