"""What a profile said that a removal would save, put beside what the experiment found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from preroll.errors import InputError
from preroll.instruments.ablation.verdict import Effect
from preroll.instruments.startup import profile_file

# A prediction this near to the measured saving is called right, whatever the interval.
WITHIN = 0.25
NEAR = 12


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
    """The package `name` in a profile's file. Raises InputError when there is none."""
    imports = profile_file.read(path).imports
    found = imports.get(name)
    if found is None:
        near = ", ".join(sorted(imports)[:NEAR]) or "none"
        raise InputError(f"--predict {path}: it has no package {name!r}; it has: {near}")
    return Prediction(name, found.exclusive_s, found.inclusive_s)
