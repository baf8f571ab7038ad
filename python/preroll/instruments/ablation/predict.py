"""What a profile said that a removal would save, put beside what the experiment found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preroll.errors import InputError
from preroll.instruments.ablation.verdict import Effect

# A prediction this near to the measured saving is called right, whatever the interval.
WITHIN = 0.25


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds by name; `inclusive_s` is what its line in the profile showed."""

    name: str
    exclusive_s: float
    inclusive_s: float

    def error(self, total: Effect) -> float | None:
        """The relative error against the measured saving; None for a saving of nothing."""
        if total.saving_s == 0:
            return None
        return (self.exclusive_s - total.saving_s) / abs(total.saving_s)

    def is_right(self, total: Effect) -> bool:
        """Inside the exact interval, or within a quarter of the estimate."""
        if total.low_s is not None and total.high_s is not None:
            inside = total.low_s <= self.exclusive_s <= total.high_s
        else:
            inside = False
        error = self.error(total)
        return inside or (error is not None and abs(error) <= WITHIN)


def read(path: Path, name: str) -> Prediction:
    """The import `name` in a profile's JSON. Raises InputError when there is none."""
    try:
        data: Any = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"--predict {path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"--predict {path}: not JSON ({error})") from None
    imports = data.get("imports") if isinstance(data, dict) else None
    if not isinstance(imports, dict):
        raise InputError(f"--predict {path}: no file of preroll profile --json: it has no imports")
    found = imports.get(name)
    if not isinstance(found, dict):
        near = ", ".join(sorted(imports)[:12]) or "none"
        raise InputError(f"--predict {path}: it has no import {name!r}; it has: {near}")
    try:
        return Prediction(name, float(found["exclusive_s"]), float(found["inclusive_s"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"--predict {path}: import {name!r} without {error}") from None
