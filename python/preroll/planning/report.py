"""What a plan consists of, and how it is shown: one page of text, or JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from preroll.core import Measurement

WIDTH = 100
GLUED = re.compile(r"(?<=[0-9]) (?=(?:s|ms|min|h|[kMGT]?B|%|×)(?![a-zA-Z]))")
"""The space between a number and its unit: no line is broken there."""


@dataclass(frozen=True, slots=True)
class Line:
    """One result: `value` in SI units beside its text; None where the result is words only."""

    label: str
    text: str
    value: float | None = None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    measured: Measurement | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One of the nine parts: formula, inputs, results, and where the formula holds."""

    key: str
    title: str
    formula: str
    inputs: str
    lines: Sequence[Line]
    validity: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The page: header, nine parts, and what follows from them."""

    header: str
    parts: tuple[Part, ...]
    conclusions: tuple[Line, ...]
    levers: tuple[str, ...]
    app_file: str
    warnings: tuple[str, ...] = field(default=())


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain data; measurements keep value, interval, date and sample count."""
    data = asdict(plan)
    for part in data["parts"]:
        for line in part["lines"]:
            _shorten(line)
    for line in data["conclusions"]:
        _shorten(line)
    return data


def _shorten(line: dict[str, Any]) -> None:
    m = line["measured"]
    if m is not None:
        line["measured"] = {k: m[k] for k in ("kind", "value", "unit", "low", "high", "date")}
        line["measured"]["samples"] = len(m["samples"])


def as_text(plan: Plan) -> str:
    """The page for a terminal, at most 100 columns."""
    out = [row for line in plan.header.splitlines() for row in wrap(line)]
    for number, part in enumerate(plan.parts, 1):
        out += ["", f"{number}. {part.title}", *_wrapped(f"= {part.formula}")]
        out += _wrapped(f"inputs: {part.inputs}")
        out += [text for line in part.lines for text in _line(line)]
        out += _wrapped(f"holds: {part.validity}")
    out += ["", "So", *(text for line in plan.conclusions for text in _line(line))]
    out += ["", "Levers, cheapest first"]
    for number, lever in enumerate(plan.levers, 1):
        out += wrap(f"{number}. {lever}", "   ", "      ")
    out += [text for warning in plan.warnings for text in _wrapped(f"warning: {warning}")]
    out += ["", "App file", *(f"    {row}" for row in plan.app_file.splitlines())]
    return "\n".join(out)


def wrap(text: str, first: str = "", later: str = "") -> list[str]:
    """Rows of at most WIDTH columns; a number stays with its unit."""
    glued = GLUED.sub("\u00a0", text)
    rows = textwrap.wrap(
        glued, WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )
    return [row.replace("\u00a0", " ") for row in rows]


def _wrapped(text: str) -> list[str]:
    return wrap(text, "   ", "     ")


def _line(line: Line) -> list[str]:
    shown = f"{line.label:<34} {line.text}"
    rows = wrap(shown, "   ", " " * 38)
    if line.measured is not None:
        rows.append(f"{'':38}measured here: {measured_text(line.measured)}")
    return rows


def measured_text(m: Measurement) -> str:
    """`21.3 s (20.1–22.8, 12 samples, 2026-11-28)`."""
    interval = f"{m.low:.3g}–{m.high:.3g}, " if m.low is not None and m.high is not None else ""
    return f"{m.value:.4g} {m.unit} ({interval}{len(m.samples)} samples, {m.date[:10]})"


def seconds(value: float) -> str:
    """A duration in the unit that reads best."""
    if value >= 90.0:
        return f"{value / 60:.1f} min" if value < 5400 else f"{value / 3600:.1f} h"
    return f"{value:.3g} s" if value >= 1.0 or value == 0.0 else f"{value * 1e3:.3g} ms"


def size(value: float) -> str:
    """Bytes in powers of ten."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value:.0f} B"


def per_hour(rate: float) -> str:
    """A rate of events per hour; below one a year nobody will see it."""
    return "under 1 a year" if 0 < rate < 1 / 8766 else f"{rate:.2g}/h"


def plural(number: int, noun: str) -> str:
    """`1 device`, `8 devices`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(value: float) -> str:
    """A share; below a thousandth of a percent nobody can tell it from none."""
    if 0 < value < 1e-5:
        return "under 0.001 %"
    return f"{value * 100:.3g} %"
