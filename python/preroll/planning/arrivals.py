"""Arrival times, and token counts where there are any, from a trace or an access log.

Read: JSON lines (the door's access log, Mooncake), CSV with a header (Azure), and the common log
format of web servers. Streaming, one line at a time; a line that cannot be read is an error that
names it.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev

from preroll.errors import InputError

TIME_KEYS = ("t_ns", "accepted_ns", "arrived_ns", "timestamp", "time", "ts", "arrival_time", "t")
IN_KEYS = ("input_length", "contexttokens", "prompt_tokens", "input_tokens", "tokens_in")
OUT_KEYS = ("output_length", "generatedtokens", "completion_tokens", "output_tokens", "tokens_out")
COMMON_LOG = re.compile(r"\[(\d{2}/\w{3}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4})\]")
MOST = 5_000_000
MILLISECONDS_ABOVE, NANOSECONDS_ABOVE = 1e11, 1e16
"""Epoch seconds are below 1e11 until the year 5138; epoch milliseconds are below 1e16."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Sorted arrival times in seconds (n >= 2), and mean tokens and output variation if known."""

    times_s: tuple[float, ...]
    isl: float | None
    osl: float | None
    cs: float | None

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """n−1 gaps between arrivals."""
        return tuple(b - a for a, b in zip(self.times_s, self.times_s[1:], strict=False))

    @property
    def rate(self) -> float:
        """Requests/s over the span; a span of zero counts as one second."""
        span = self.times_s[-1] - self.times_s[0]
        return (len(self.times_s) - 1) / span if span > 0 else float(len(self.times_s))

    @property
    def ca(self) -> float:
        """Coefficient of variation of the gaps."""
        return variation(self.gaps_s)


def variation(values: tuple[float, ...]) -> float:
    """Standard deviation over mean; 0 for a mean of 0."""
    mean = fmean(values)
    return pstdev(values) / mean if mean > 0 else 0.0


Row = tuple[float, float | None, float | None]


def read(path: Path) -> Arrivals:
    """Arrivals of a file; InputError names the file, the line and what is wrong."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            first = file.readline()
            file.seek(0)
            rows = list(_bounded(_reader(first)(file), path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if len(rows) < 2:
        raise InputError(f"{path} has {len(rows)} arrivals; at least 2 are needed for a gap")
    rows.sort(key=lambda row: row[0])
    outs = tuple(row[2] for row in rows if row[2] is not None)
    ins = [row[1] for row in rows if row[1] is not None]
    return Arrivals(
        tuple(row[0] for row in rows),
        max(1.0, fmean(ins)) if ins else None,
        max(1.0, fmean(outs)) if outs else None,
        variation(outs) if outs else None,
    )


def _bounded(rows: Iterator[Row], path: Path) -> Iterator[Row]:
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            if number > MOST:
                raise InputError(f"{path} has more than {MOST:,} arrivals; give a part of it")
            yield row
    except (ValueError, KeyError, TypeError, RecursionError, csv.Error) as error:
        raise InputError(f"{path}, record {number + 1}: {error}") from None


def _reader(first: str) -> Callable[[Iterator[str]], Iterator[Row]]:
    if first.lstrip().startswith("{"):
        return _json_lines
    return _common_log if COMMON_LOG.search(first) else _csv


def _json_lines(lines: Iterator[str]) -> Iterator[Row]:
    for line in lines:
        if line.strip():
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError(f"a JSON object is needed, not {line.strip()[:40]!r}")
            yield _row({str(k).lower(): v for k, v in record.items()})


def _csv(lines: Iterator[str]) -> Iterator[Row]:
    for record in csv.DictReader(lines):
        yield _row({str(k).lower(): v for k, v in record.items()})


def _common_log(lines: Iterator[str]) -> Iterator[Row]:
    for line in lines:
        match = COMMON_LOG.search(line)
        if match is None:
            raise ValueError(f"no [time] in {line.strip()[:60]!r}")
        yield datetime.strptime(match[1], "%d/%b/%Y:%H:%M:%S %z").timestamp(), None, None


def _row(record: Mapping[str, object]) -> Row:
    key = next((k for k in TIME_KEYS if record.get(k) not in (None, "")), None)
    if key is None:
        raise ValueError(f"no time; a field out of {', '.join(TIME_KEYS)} is needed")
    mooncake = key == "timestamp" and "input_length" in record
    scale = 1e-9 if key.endswith("_ns") else 1e-3 if mooncake else None
    return _seconds(record[key], scale), _count(record, IN_KEYS), _count(record, OUT_KEYS)


def _seconds(value: object, scale: float | None) -> float:
    """Seconds of a number (unit by `scale`, else by its size) or of an ISO 8601 time."""
    try:
        number = float(str(value))
    except ValueError:
        moment = datetime.fromisoformat(str(value).strip()[:26])
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"the time {value!r} is not a number >= 0")
    if scale is None:
        scale = 1e-9 if number > NANOSECONDS_ABOVE else 1e-3 if number > MILLISECONDS_ABOVE else 1.0
    return number * scale


def _count(record: Mapping[str, object], keys: tuple[str, ...]) -> float | None:
    key = next((k for k in keys if record.get(k) not in (None, "")), None)
    if key is None:
        return None
    number = float(str(record[key]))
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{key} is {record[key]!r}; a number >= 0 is needed")
    return number
