"""Fits the speed model of `calibration`: non-negative physics, then kernel ridge. Needs numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from preroll.planning.calibration import LENGTH, Measured, Target, coordinates

Array = NDArray[np.float64]
NOISE = {"tpot": 0.15, "ttft": 0.15}
"""Ridge of the correction: variance of a measurement over the variance of the correction."""
ROBUST = {"tpot": 0.15, "ttft": 0.3}
"""Residuals of the logarithm beyond this weigh less: a few published rows are mislabelled."""


def non_negative(matrix: Array, target: Array) -> Array:
    """x >= 0 of least |matrix·x − target|² (Lawson and Hanson, 1974); (m, n), (m,) → (n,)."""
    count = matrix.shape[1]
    x, active = np.zeros(count), np.zeros(count, dtype=bool)
    for _ in range(3 * count):
        gradient = np.where(active, -np.inf, matrix.T @ (target - matrix @ x))
        if active.all() or gradient.max() <= 1e-9:
            break
        active[int(gradient.argmax())] = True
        x = _inside(matrix, target, x, active)
    return x


def _inside(matrix: Array, target: Array, x: Array, active: NDArray[np.bool_]) -> Array:
    """Least squares on the active columns, stepping back to the boundary while any is below 0."""
    for _ in range(matrix.shape[1] + 1):
        trial = np.zeros_like(x)
        trial[active] = np.linalg.lstsq(matrix[:, active], target, rcond=None)[0]
        low = active & (trial <= 0.0)
        if not low.any():
            return trial
        step = float(np.min(x[low] / (x[low] - trial[low] + 1e-300)))
        x = x + step * (trial - x)
        active &= x > 1e-15
        x[~active] = 0.0
    return x


def physics(terms: Array, times: Array) -> Array:
    """Coefficients >= 0 of the terms with least absolute relative error, by reweighting."""
    ratio, weight = terms / times[:, None], np.ones(len(times))
    for _ in range(20):
        x = non_negative(ratio * weight[:, None], weight)
        fitted = np.maximum(ratio @ x, 1e-3)
        weight = 1 / np.sqrt(np.maximum(abs(np.log(fitted)), 0.03) * np.maximum(fitted, 0.3))
    return x


def distances(a: Array, b: Array) -> Array:
    """Euclidean, between the rows of `a` (n, k) and `b` (m, k): (n, m)."""
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
    result: Array = np.sqrt(np.maximum(squares, 0.0))
    return result


def kernel(a: Array, b: Array, length: float = LENGTH) -> Array:
    """exp(−distance/length) between the rows of `a` (n, k) and `b` (m, k): (n, m)."""
    result: Array = np.exp(-distances(a, b) / length)
    return result


def correction(gram: Array, errors: Array, target: Target, ridge: float) -> Array:
    """Weights of the kernel ridge regression on log errors; outliers weigh less the second time.

    `gram`: kernel between the points (n, n). Solved in 32 bits: the ridge keeps the condition
    below 1e5, and it halves the time.
    """
    single, noise = gram.astype(np.float32), np.full(len(errors), ridge)
    diagonal = np.arange(len(errors))
    for _ in range(2):
        matrix = single.copy()
        matrix[diagonal, diagonal] += noise.astype(np.float32)
        weights = np.linalg.solve(matrix, errors.astype(np.float32))
        left = np.abs(errors - single @ weights)
        noise = ridge * np.maximum(1.0, left / ROBUST[target])
    return np.asarray(weights, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured point with its terms of one target, computed once for all folds."""

    measured: Measured
    terms: dict[str, float]
    time_s: float


def samples(points: Sequence[Measured], target: Target) -> list[Sample]:
    return [
        Sample(m, m.point.terms(target), m.tpot_s if target == "tpot" else m.ttft_s) for m in points
    ]


@dataclass(frozen=True, slots=True)
class Trained:
    """A fit on some points: coefficients of the terms, and the correction at those points."""

    target: Target
    names: tuple[str, ...]
    coefficients: Array
    places: Array
    weights: Array

    def base(self, points: Sequence[Sample]) -> tuple[Array, Array]:
        """(seconds by physics, coordinates) of the points."""
        found = [self._one(sample) for sample in points]
        return np.array([b for b, _ in found]), np.array([c for _, c in found])

    def _one(self, sample: Sample) -> tuple[float, list[float]]:
        point = sample.measured.point
        pairs = zip(self.names, self.coefficients, strict=True)
        parts = {name: float(c) * sample.terms[name] for name, c in pairs}
        total = sum(parts.values())
        shares = {n: part / total for n, part in parts.items()}
        return total, coordinates(point, total, shares)

    def predict(self, points: Sequence[Sample], share: float = 1.0) -> Array:
        """Seconds at the points, with `share` of the correction."""
        base, places = self.base(points)
        result: Array = base * np.exp(share * (kernel(places, self.places) @ self.weights))
        return result

    def exported(self) -> dict[str, Any]:
        """What speed.json keeps of it."""
        pairs = zip(self.names, self.coefficients, strict=True)
        rounded = {name: float(f"{c:.6g}") for name, c in pairs}
        return {"coefficients": rounded, "weights": [float(f"{w:.5g}") for w in self.weights]}


def train(points: Sequence[Sample], target: Target) -> Trained:
    """Fit `target` on `points`."""
    half, base, places = physics_of(points, target)
    times = np.array([sample.time_s for sample in points])
    gram = kernel(places, places)
    weights = correction(gram, np.log(times / base), target, NOISE[target])
    return Trained(target, half.names, half.coefficients, places, weights)


def physics_of(points: Sequence[Sample], target: Target) -> tuple[Trained, Array, Array]:
    """The fit without its correction, its seconds at the points, and their coordinates."""
    times = np.array([sample.time_s for sample in points])
    names = tuple(points[0].terms)
    terms = np.array([[sample.terms[n] for n in names] for sample in points])
    half = Trained(target, names, physics(terms, times), np.zeros((0, 0)), np.zeros(0))
    base, places = half.base(points)
    return half, base, places
