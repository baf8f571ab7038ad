"""Durations and sizes as people write them: "300ms", "2s", "1h30m"; "24GiB", "512MB"."""

from __future__ import annotations

import re

SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")

# Longer or larger than anything meant on purpose: a slip of the pen is better refused.
MAX_DURATION_S = 366 * 86400.0
MAX_BYTES = 2**60

DURATION_ALLOWED = 'a duration such as "300ms", "2s", "1m30s", "1h"'
SIZE_ALLOWED = 'a size such as "512MiB", "24GiB", "40GB"'


def parse_duration(value: object) -> float:
    """Seconds of a duration string; ValueError says what is allowed and how to mend the value."""
    if isinstance(value, bool) or not isinstance(value, str):
        fix = f'; did you mean "{value}s"?' if type(value) in (int, float) else ""
        raise ValueError(f"a duration needs its unit; allowed: {DURATION_ALLOWED}{fix}")
    if not DURATION.fullmatch(value):
        raise ValueError(f"not a duration; allowed: {DURATION_ALLOWED}")
    seconds = sum(float(n) * SECONDS[unit] for n, unit in DURATION_PART.findall(value))
    if seconds > MAX_DURATION_S:
        raise ValueError(f"longer than a year; allowed: {DURATION_ALLOWED}")
    return seconds


def parse_size(value: object) -> int:
    """Bytes of a size string; ValueError says what is allowed and how to mend the value."""
    if isinstance(value, bool) or not isinstance(value, str):
        fix = f'; did you mean "{value}B"?' if type(value) is int else ""
        raise ValueError(f"a size needs its unit; allowed: {SIZE_ALLOWED}{fix}")
    match = SIZE.fullmatch(value)
    if not match:
        raise ValueError(f"not a size; allowed: {SIZE_ALLOWED}")
    num_bytes = round(float(match[1]) * BYTES[match[2]])
    if not 0 < num_bytes <= MAX_BYTES:
        raise ValueError(f"must be above 0 and at most 1024PiB; allowed: {SIZE_ALLOWED}")
    return num_bytes


def format_duration(seconds: float) -> str:
    """The shortest exact spelling that `parse_duration` reads back (to the millisecond)."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("d", 86400000), ("h", 3600000), ("m", 60000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def format_size(num_bytes: int) -> str:
    """The shortest exact spelling that `parse_size` reads back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if num_bytes % BYTES[unit] == 0:
            return f"{num_bytes // BYTES[unit]}{unit}"
    return f"{num_bytes}B"
