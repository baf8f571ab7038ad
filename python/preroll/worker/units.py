"""Durations as a stage's code writes them: text with a unit, or seconds."""

from __future__ import annotations

import re

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def duration_s(value: str | float, name: str) -> float:
    """Seconds of `"5ms"`, `"1.5s"`, `"2m"` or a number of seconds; `name` is for the error."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m)", value) if isinstance(value, str) else None
    if matched is None:
        raise ValueError(f'{name} = {value!r}; allowed: a duration such as "5ms", or seconds')
    return float(matched[1]) * _SECONDS[matched[2]]
