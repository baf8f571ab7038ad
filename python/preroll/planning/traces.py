"""Recorded requests: Azure LLM 2023 (CSV), Mooncake (JSON lines), our own access log."""

from __future__ import annotations

import csv
import io
import json
import lzma
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from preroll.errors import InputError

Buffers = tuple[bytes, bytes, bytes, bytes, bytes]
NS = 1_000_000_000
MAX_U32 = 2**32 - 1


@dataclass(slots=True)
class Trace:
    """Requests in order of time. `times_ns` begin at 0; `hashes` are prefix block ids."""

    times_ns: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    hashes: list[list[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.times_ns)

    @property
    def end_s(self) -> float:
        return self.times_ns[-1] / NS if self.times_ns else 0.0

    def faster(self, factor: float) -> Trace:
        """The same requests with all gaps divided by `factor`."""
        times = [round(t / factor) for t in self.times_ns]
        return Trace(times, self.prompts, self.outputs, self.hashes)

    def buffers(self) -> Buffers:
        """Little-endian buffers as `_core.Simulation` takes them."""
        offsets, flat = array("I"), array("I")
        if self.hashes:
            offsets.append(0)
            for blocks in self.hashes:
                flat.extend(blocks)
                offsets.append(len(flat))
        times, prompts = array("Q", self.times_ns), array("I", self.prompts)
        outputs = array("I", self.outputs)
        return (
            times.tobytes(),
            prompts.tobytes(),
            outputs.tobytes(),
            offsets.tobytes(),
            flat.tobytes(),
        )


def read_trace(path: Path) -> Trace:
    """Reads a trace by what its first line looks like; `.xz` is unpacked.

    Raises InputError that names the file, the line and what is allowed.
    """
    try:
        packed = path.read_bytes()
        data = lzma.decompress(packed) if path.suffix == ".xz" else packed
        text = data.decode()
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise InputError(f"trace {path} cannot be read: {error}") from error
    return parse_trace(text, str(path))


def parse_trace(text: str, name: str) -> Trace:
    """The trace in `text`; `name` is used in errors."""
    first = text.lstrip()[:1]
    if not first:
        raise InputError(f"trace {name} is empty: it needs at least one request")
    rows = _json_rows(text, name) if first == "{" else _csv_rows(text, name)
    return _sorted(rows, name)


Row = tuple[int, int, int, list[int]]


def _sorted(rows: Iterable[Row], name: str) -> Trace:
    ordered = sorted(rows, key=lambda row: row[0])
    if not ordered:
        raise InputError(f"trace {name} has no request: it needs at least one")
    begin = ordered[0][0]
    trace = Trace()
    for time_ns, prompt, output, blocks in ordered:
        trace.times_ns.append(time_ns - begin)
        trace.prompts.append(prompt)
        trace.outputs.append(output)
        trace.hashes.append(blocks)
    if not any(trace.hashes):
        trace.hashes = []
    return trace


def _csv_rows(text: str, name: str) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text))
    missing = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} - set(reader.fieldnames or ())
    if missing:
        raise InputError(
            f"trace {name} has no column {', '.join(sorted(missing))}: "
            "a CSV trace has TIMESTAMP,ContextTokens,GeneratedTokens"
        )
    for number, row in enumerate(reader, start=2):
        try:
            time_ns = _timestamp_ns(row["TIMESTAMP"])
            yield time_ns, _tokens(row["ContextTokens"]), _tokens(row["GeneratedTokens"]), []
        except (TypeError, ValueError) as error:
            raise InputError(f"trace {name}, line {number}: {error}") from error


def _timestamp_ns(text: str) -> int:
    """Exact: seven digits of a second are more than `datetime` keeps."""
    whole, _, fraction = text.partition(".")
    digits = "".join(c for c in fraction if c.isdigit())[:9]
    seconds = datetime.fromisoformat(whole + "+00:00").timestamp()
    return round(seconds) * NS + int(digits.ljust(9, "0"))


def _json_rows(text: str, name: str) -> Iterator[Row]:
    ids: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not a JSON object")
            yield _mooncake(row, ids) if "timestamp" in row else _access(row)
        except KeyError as error:
            raise InputError(
                f"trace {name}, line {number}: no field {error}; JSON lines are Mooncake's "
                "(timestamp, input_length, output_length), the door's access log (time_s, "
                "total_ms, completion_tokens), or t, prompt_tokens, output_tokens"
            ) from error
        except (TypeError, ValueError) as error:
            raise InputError(f"trace {name}, line {number}: {error}") from error


def _mooncake(row: dict[str, Any], ids: dict[int, int]) -> Row:
    """Times are milliseconds; block ids are renumbered from 0 as they appear."""
    blocks = [ids.setdefault(int(block), len(ids)) for block in row.get("hash_ids", ())]
    time_ns = round(float(row["timestamp"]) * 1e6)
    return time_ns, _tokens(row["input_length"]), _tokens(row["output_length"]), blocks


def _access(row: dict[str, Any]) -> Row:
    """A line of the door's access log, which is written when the request has ended, or of any log
    with `t`: seconds since the epoch at the arrival. Unknown token counts are 0."""
    seconds, after_s = (
        (float(row["t"]), 0.0)
        if "t" in row
        else (float(row["time_s"]), float(row["total_ms"]) / 1e3)
    )
    whole = int(seconds)
    # in one product a float of this size would lose a hundred nanoseconds
    time_ns = whole * NS + round((seconds - whole - after_s) * 1e9)
    output = row.get("output_tokens", row.get("completion_tokens"))
    return time_ns, _tokens(row.get("prompt_tokens")), _tokens(output), []


def _tokens(value: Any) -> int:
    if value is None:
        return 0
    number = int(value)
    if not 0 <= number <= MAX_U32:
        raise ValueError(f"{number} tokens; 0 to {MAX_U32} is allowed")
    return number
