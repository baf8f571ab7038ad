"""Measurements beside the app: the file, its entries, which of them still hold, and why not.

`app.measured.toml` is meant to be committed: it is written in a fixed order and only as a whole.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from preroll.core import Fingerprint, Measurement
from preroll.errors import InputError
from preroll.quantiles import median, median_interval

VERSION = 1
# Enough for every quantile that the instruments show (p99 needs 299); a file stays readable.
MAX_SAMPLES = 512
START = "start"
CLIFF = "cliff"
"""Kind of what `preroll cliff` writes: the value is a limit of requests in flight per replica."""
HEAD = "# Measured by preroll; commit this file beside the app file. Stale entries are not used.\n"


def measured_path(app_path: Path) -> Path:
    """`app.toml` -> `app.measured.toml`."""
    return app_path.with_name(f"{app_path.stem}.measured.toml")


@dataclass(frozen=True, slots=True)
class Match:
    """The newest entry whose fingerprint agrees, or none; and the newest one that does not."""

    current: Measurement | None
    stale: Measurement | None
    differs: tuple[str, ...] = ()

    def sentence(self, now: datetime) -> str:
        """Where a number comes from, or why there is none; for `ps` and the log."""
        if self.current is not None:
            m = self.current
            return f"{m.kind} {m.value:.3g} {m.unit}, {len(m.samples)} samples, {age(m, now)} old"
        if self.stale is None:
            return "not measured"
        m = self.stale
        return f"{m.kind} {m.value:.3g} {m.unit} is stale ({age(m, now)} old): {self._difference()}"

    def _difference(self) -> str:
        return "; ".join(self.differs)


def match(entries: Iterable[Measurement], stage: str, kind: str, fingerprint: Fingerprint) -> Match:
    """Finds the entry to use. Fingerprints agree as a whole or not at all."""
    mine = [m for m in entries if m.stage == stage and m.kind == kind]
    mine.sort(key=lambda m: m.date)
    current = next((m for m in reversed(mine) if m.fingerprint == fingerprint), None)
    stale = next((m for m in reversed(mine) if m.fingerprint != fingerprint), None)
    differs = () if stale is None else differences(stale.fingerprint, fingerprint)
    return Match(current, stale, differs)


def differences(then: Fingerprint, now: Fingerprint) -> tuple[str, ...]:
    """Each field that differs, with both values."""
    return tuple(
        f"{f.name} was {_shown(getattr(then, f.name))}, now {_shown(getattr(now, f.name))}"
        for f in dataclasses.fields(Fingerprint)
        if getattr(then, f.name) != getattr(now, f.name)
    )


def _shown(value: object) -> str:
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    return f"'{text[:60]}…'" if len(text) > 61 else f"'{text}'"


def age(measurement: Measurement, now: datetime) -> str:
    """How old an entry is, in its largest unit; "unknown age" for a date that cannot be read."""
    try:
        then = datetime.fromisoformat(measurement.date)
    except ValueError:
        return "unknown age"
    seconds = max(0.0, (now - then.replace(tzinfo=then.tzinfo or UTC)).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def of_starts(
    stage: str, totals_s: Sequence[float], fingerprint: Fingerprint, now: datetime
) -> Measurement:
    """Starts as a measurement: the median with its interval, and the samples in their order."""
    samples = tuple(round(float(s), 6) for s in totals_s[-MAX_SAMPLES:])
    interval = median_interval(samples)
    return Measurement(
        stage=stage,
        kind=START,
        value=round(median(samples), 6),
        unit="s",
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        samples=samples,
        date=now.astimezone(UTC).isoformat(timespec="seconds"),
        fingerprint=fingerprint,
    )


def put(entries: Sequence[Measurement], new: Measurement) -> list[Measurement]:
    """The entries with `new` in the place of the one of the same stage, kind and fingerprint."""
    kept = [m for m in entries if _key(m) != _key(new)]
    return [*kept, new]


def keep(app_path: Path, new: Measurement) -> Path:
    """Puts an entry into the file beside an app file; returns which. Raises InputError."""
    path = measured_path(app_path)
    write(path, put(read(path), new))
    return path


def _key(m: Measurement) -> tuple[str, str, str]:
    return m.stage, m.kind, repr(m.fingerprint)


def read(path: Path) -> list[Measurement]:
    """The entries of a file; none if there is no file. Raises InputError for a damaged one."""
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); mend or remove it") from None
    if data.get("version") != VERSION:
        raise InputError(
            f"{path}: version {data.get('version')!r}; allowed: {VERSION}; remove the file"
        )
    try:
        return [_measurement(entry) for entry in data.get("measurement", [])]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: bad entry ({error!r}); mend or remove it") from None


def _measurement(entry: dict[str, Any]) -> Measurement:
    fingerprint = dict(entry["fingerprint"])
    fingerprint["args"] = tuple(fingerprint["args"])
    low, high = entry.get("low"), entry.get("high")
    return Measurement(
        stage=str(entry["stage"]),
        kind=str(entry["kind"]),
        value=float(entry["value"]),
        unit=str(entry["unit"]),
        low=None if low is None else float(low),
        high=None if high is None else float(high),
        samples=tuple(float(s) for s in entry["samples"]),
        date=str(entry["date"]),
        fingerprint=Fingerprint(**fingerprint),
        extra={str(k): float(v) for k, v in entry.get("extra", {}).items()},
    )


def write(path: Path, entries: Iterable[Measurement]) -> None:
    """Replaces the file in one step: a reader sees the old or the new one, a crash leaves one."""
    ordered = sorted(entries, key=_key)
    text = HEAD + f"version = {VERSION}\n" + "".join(_toml(m) for m in ordered)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _toml(m: Measurement) -> str:
    lines = ["", "[[measurement]]"]
    for name in ("stage", "kind", "value", "unit", "low", "high", "samples", "date"):
        value = getattr(m, name)
        if value is not None:
            lines.append(f"{name} = {_value(value)}")
    lines.append("[measurement.fingerprint]")
    lines += [
        f"{f.name} = {_value(getattr(m.fingerprint, f.name))}"
        for f in dataclasses.fields(Fingerprint)
    ]
    if m.extra:
        lines.append("[measurement.extra]")
        lines += [f"{_string(k)} = {_value(m.extra[k])}" for k in sorted(m.extra)]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return _string(value) if isinstance(value, str) else repr(value)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
    )
