"""Errors of the speed model on held-out data, and the conformal interval made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from preroll.planning.calibration import Measured, Target
from preroll.planning.calibration_fit import Array, samples, train

Group = Callable[[Measured], str]
COVERAGE = 0.90


def configuration(m: Measured) -> str:
    """Model, engine, device, precision, parallel sizes: all loads of one are held out at once."""
    d = m.point.deployment
    sizes = f"{d.num_devices} {d.ep} {d.dp_attention}"
    return f"{d.shape.name} {d.engine} {d.device.key} {d.shape.precision} {sizes}"


def model(m: Measured) -> str:
    return m.point.deployment.shape.name


def device(m: Measured) -> str:
    return m.point.deployment.device.key


def fold_of(name: str, folds: int) -> int:
    """A fold by the hash of a group's name: the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % folds


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Predictions of points that their fit never saw; `logs` are ln(measured/predicted)."""

    predicted: Array
    measured: Array
    groups: list[str]

    @property
    def logs(self) -> Array:
        result: Array = np.log(self.measured / self.predicted)
        return result

    @property
    def relative(self) -> Array:
        result: Array = np.abs(self.predicted - self.measured) / self.measured
        return result

    @property
    def mape(self) -> float:
        return float(self.relative.mean())


def parts_of(points: Sequence[Measured], group: Group, folds: int = 0) -> list[str]:
    """The part that each point is held out with: its group, or one of `folds` of groups."""
    names = [group(m) for m in points]
    return [str(fold_of(name, folds)) for name in names] if folds else names


def hold_out(
    points: Sequence[Measured], target: Target, group: Group, folds: int = 0, share: float = 1.0
) -> HeldOut:
    """Cross-validated predictions with `share` of the correction; `folds` 0 leaves out one group
    at a time."""
    parts = np.array(parts_of(points, group, folds))
    rows = samples(points, target)
    predicted = np.zeros(len(points))
    for part in sorted(set(parts.tolist())):
        inside = [row for row, p in zip(rows, parts, strict=True) if p != part]
        outside = [row for row, p in zip(rows, parts, strict=True) if p == part]
        predicted[parts == part] = train(inside, target).predict(outside, share)
    names = [group(m) for m in points]
    return HeldOut(predicted, np.array([row.time_s for row in rows]), names)


def spread(logs: Array, coverage: float = COVERAGE) -> tuple[float, float]:
    """Factors (low, high) around a prediction: conformal quantiles of ln(measured/predicted)."""
    tail = (1 - coverage) / 2
    n = len(logs)
    low = np.quantile(logs, max(0.0, tail - 1 / n), method="lower")
    high = np.quantile(logs, min(1.0, 1 - tail + 1 / n), method="higher")
    return float(np.exp(low)), float(np.exp(high))


def coverage_of(held: HeldOut, folds: int = 5) -> float:
    """Share of points inside an interval made from the other groups' errors (cross-conformal)."""
    parts = np.array([fold_of("interval " + name, folds) for name in held.groups])
    inside = 0
    for part in range(folds):
        here = held.logs[parts == part]
        if len(here):
            low, high = np.log(spread(held.logs[parts != part]))
            inside += int(((here >= low) & (here <= high)).sum())
    return inside / len(held.groups)
