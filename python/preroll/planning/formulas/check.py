"""Range checks of the formulas: what, the value, what is allowed."""

from __future__ import annotations

import math

from preroll.errors import InputError

LARGEST = 1e18
"""Above this no quantity here is physical (bytes, FLOP/s, tokens): it is a wrong unit."""


def number(name: str, value: object, low: float, high: float = LARGEST) -> float:
    """`value` as a float in [low, high]; bool, text, NaN and infinity are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is {value!r}; a number from {low:g} to {high:g} is needed")
    if isinstance(value, int) and not low <= value <= high:  # before float(): 10**400 overflows
        raise InputError(f"{name} is {_short(value)}; allowed is {low:g} to {high:g}")
    result = float(value)
    if not math.isfinite(result) or not low <= result <= high:
        raise InputError(f"{name} is {_short(value)}; allowed is {low:g} to {high:g}")
    return result


def positive(name: str, value: object, high: float = LARGEST) -> float:
    """`value` as a float in (0, high]."""
    result = number(name, value, 0.0, high)
    if result == 0.0:
        raise InputError(f"{name} is 0; it must be above 0 and at most {high:g}")
    return result


def whole(name: str, value: object, low: int, high: int) -> int:
    """`value` as an int in [low, high]; 8.0 is taken, 8.5 is refused."""
    result = number(name, value, low, high)
    if result != int(result):
        raise InputError(f"{name} is {value!r}; a whole number from {low} to {high} is needed")
    return int(result)


def _short(value: int | float) -> str:
    return f"{value:g}" if isinstance(value, float) or abs(value) < 10**15 else "beyond 1e15"
