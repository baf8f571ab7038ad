"""Reads `--traffic` and `--slo`: short texts of key=value pairs, every error in one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from preroll.config.units import parse_duration
from preroll.core import Slo
from preroll.errors import InputError
from preroll.planning import arrivals
from preroll.planning.arrivals import Arrivals
from preroll.planning.inputs import Traffic

PER = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
RATE = re.compile(r"([0-9.eE+-]+)\s*/\s*(s|min|m|h|d)")


def parse_slo(text: str | None) -> Slo:
    """`ttft=800ms,itl=40ms` → Slo in seconds; either may be left out."""
    readers = {"ttft": parse_duration, "itl": parse_duration}
    found = _pairs("--slo", text or "", readers)
    return Slo(found.get("ttft"), found.get("itl"))


def parse_traffic(text: str | None, seen: Arrivals | None, source: str) -> Traffic:
    """Traffic of `--traffic` (pairs or a file) and of the arrivals of a trace, pairs first."""
    if text and "=" not in text:
        if seen is not None:
            raise InputError(f"--traffic {text} and a trace: give arrivals once")
        seen, source, text = arrivals.read(Path(text)), text, None
    readers: dict[str, Callable[[str], float]] = {
        "rate": _rate,
        "in": _number,
        "out": _number,
        "cs": _number,
        "ca": _number,
    }
    given = _pairs("--traffic", text or "", readers)
    plain = Traffic()
    values = {
        "rate": seen.rate if seen else plain.rate,
        "in": (seen.isl if seen else None) or plain.isl,
        "out": (seen.osl if seen else None) or plain.osl,
        "cs": plain.cs if seen is None or seen.cs is None else seen.cs,
        "ca": seen.ca if seen else plain.ca,
        **given,
    }
    known = source if seen else "as given" if given else "assumed: give --traffic"
    return Traffic(
        values["rate"],
        values["in"],
        values["out"],
        values["cs"],
        values["ca"],
        seen.gaps_s if seen else (),
        known,
    )


def _pairs(flag: str, text: str, readers: Mapping[str, Callable[[str], float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, _, value = (x.strip() for x in part.partition("="))
        if key not in readers or key in found:
            what = "twice" if key in found else "unknown"
            raise InputError(f"{flag}: {key!r} is {what}; allowed: {', '.join(readers)}")
        try:
            found[key] = readers[key](value)
        except ValueError as error:
            raise InputError(f"{flag}: {key} is {value!r}: {error}") from None
    return found


def _rate(text: str) -> float:
    match = RATE.fullmatch(text)
    if match is None:
        raise ValueError("a rate needs its unit, such as 6/s, 30/min or 12/h")
    return _number(match[1]) / PER[match[2]]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number is needed") from None
