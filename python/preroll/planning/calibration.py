"""The calibrated speed model: physics, corrected by the nearest measurements.

prediction = (Σ coefficient·term) · exp(share·Σ weight_i·exp(−|x − x_i|/LENGTH)), where the terms
are those of `deployment.step_terms` (or `first_token_terms`), the coefficients are >= 0 and one set
for all engines (it carries over to new models better than one per engine), and x_i are the
coordinates of the measured points, engine and device among them (kernel ridge regression on the
logarithm of the error). A model or device that was never measured gets half of the correction.
`calibration_fit` makes the numbers, speed.json holds them with the errors on held-out data.
"""

from __future__ import annotations

import csv
import json
import lzma
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from preroll.planning.catalogue import devices
from preroll.planning.deployment import ENGINES, Deployment, first_token_terms, step_terms
from preroll.planning.models import find

Target = Literal["tpot", "ttft"]
TERMS: dict[Target, Callable[[Deployment, float, float, float], dict[str, float]]] = {
    "tpot": step_terms,
    "ttft": first_token_terms,
}
LENGTH = 6.0
"""Range of the kernel in units of the scaled coordinates: chosen by benchmarks/plan/nested.py."""
CORRECTION: dict[Target, dict[str, float]] = {
    "tpot": {"configuration": 1.0, "model": 0.5, "device": 0.5},
    "ttft": {"configuration": 0.75, "model": 0.5, "device": 0.5},
}
"""Share of the correction by basis: chosen by benchmarks/plan/nested.py."""
SHARES = ("weights", "experts", "kv", "prefill", "prefill_attention", "per_layer")


@dataclass(frozen=True, slots=True)
class Point:
    """One load on one deployment: requests at once, input and output tokens per request."""

    deployment: Deployment
    concurrency: float
    isl: float
    osl: float

    def terms(self, target: Target) -> dict[str, float]:
        return TERMS[target](self.deployment, self.concurrency, self.isl, self.osl)


@dataclass(frozen=True, slots=True)
class Measured:
    """A point with its measured times in seconds."""

    point: Point
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds with a 90 % prediction interval. `basis`: which held-out error the interval is of."""

    value_s: float
    low_s: float
    high_s: float
    basis: str


@cache
def measured_points() -> tuple[Measured, ...]:
    """The points of silicon.csv.xz, in file order."""
    packed = (files("preroll.planning") / "data" / "silicon.csv.xz").read_bytes()
    rows = csv.DictReader(lzma.decompress(packed).decode().splitlines())
    return tuple(measured(row) for row in rows)


def measured(row: dict[str, str]) -> Measured:
    """One row of silicon.csv."""
    deployment = _deployment(
        *(row[k] for k in ("model", "engine", "device", "precision", "devices", "ep")),
        row["dp_attention"] == "1",
    )
    load = (float(row[k]) for k in ("concurrency", "isl", "osl"))
    times = (float(row[k]) / 1e3 for k in ("ttft_ms", "tpot_ms"))
    return Measured(Point(deployment, *load), *times)


@cache
def _deployment(
    model: str, engine: str, device: str, precision: str, num: str, ep: str, dp: bool
) -> Deployment:
    shape = find(model, precision)
    kv_dtype = "bf16" if precision == "bf16" else "fp8"
    return Deployment(shape, devices()[device], int(num), engine, int(ep), dp, kv_dtype)


def coordinates(point: Point, base_s: float, shares: dict[str, float]) -> list[float]:
    """Where a point lies among the measurements: logarithms of sizes, kinds as 0 and 1, scaled.

    `base_s`: what physics predicts; `shares`: part of it by term. The scales say how far apart two
    points are: a doubling of the batch is 0.46, another engine 2.
    """
    d, s = point.deployment, point.deployment.shape
    p = s.parameters
    blackwell = d.device.flops_fp4 is not None
    return [
        math.log(point.concurrency) / 1.5,
        math.log(point.isl),
        math.log(point.osl) / 0.8,
        math.log(d.num_devices) / 0.8,
        math.log(p.active),
        math.log(p.total) / 1.2,
        (p.experts > 0) / 0.7,
        (d.ep > 1) / 0.7,
        d.dp_attention / 0.7,
        math.log(s.layers) / 0.5,
        math.log(base_s) / 0.8,
        {"bf16": 4.0, "fp8": 3.0}.get(s.precision, 2.0),
        blackwell / 0.7,
        s.is_latent / 0.7,
        s.is_hybrid / 0.7,
        *((d.device.key == key) / 1.5 for key in ("b200", "b300", "h100", "h200")),
        *((d.engine == engine) / 0.7 for engine in ENGINES),
        *(shares.get(term, 0.0) / 0.5 for term in SHARES),
    ]


@dataclass(frozen=True, slots=True)
class Fit:
    """One fitted target: coefficients of the terms, and the weights of the measured points.

    `spread`: basis → (low, high) factors of the 90 % interval, from held-out errors.
    """

    target: Target
    coefficients: dict[str, float]
    weights: list[float]
    spread: dict[str, tuple[float, float]]

    def base_s(self, point: Point) -> tuple[float, dict[str, float]]:
        """Seconds by physics alone, and the share of each term."""
        parts = {k: self.coefficients[k] * v for k, v in point.terms(self.target).items()}
        total = sum(parts.values())
        return total, {name: part / total for name, part in parts.items()}

    def places(self) -> list[list[float]]:
        """Coordinates of all measured points under this fit."""
        return [coordinates(m.point, *self.base_s(m.point)) for m in measured_points()]

    def predict_s(self, point: Point, share: float = 1.0) -> float:
        """Seconds at `point`: physics times `share` of the correction by the measurements."""
        base, shares = self.base_s(point)
        here, total = coordinates(point, base, shares), 0.0
        for place, weight in zip(_places(self.target), self.weights, strict=True):
            total += weight * math.exp(-math.dist(here, place) / LENGTH)
        return base * math.exp(share * total)


class SpeedModel:
    """The fitted model as shipped; one per process by `speed_model()`."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.fits = {t: _fit(t, data[t]) for t in TERMS}
        self._seen = {
            field: {getter(m.point.deployment) for m in measured_points()}
            for field, getter in _KINDS.items()
        }

    def basis(self, deployment: Deployment) -> str:
        """What the interval rests on: measured alike, or a model or device that never was.

        Both count per engine: a model measured with another engine only is as good as new.
        """
        known = {k: getter(deployment) in self._seen[k] for k, getter in _KINDS.items()}
        return next((kind for kind in ("device", "model") if not known[kind]), "configuration")

    def estimate(self, target: Target, point: Point) -> Estimate:
        """TPOT or TTFT in seconds with its 90 % interval.

        Valid: a closed loop of `concurrency` requests, steady state, no prefix reuse and no
        speculative decoding, 1–8 devices of one node.
        """
        fit, basis = self.fits[target], self.basis(point.deployment)
        value = fit.predict_s(point, CORRECTION[target][basis])
        low, high = fit.spread[basis]
        return Estimate(value, value * low, value * high, basis)


def _device_of(d: Deployment) -> Hashable:
    return d.device.key, d.engine


def _model_of(d: Deployment) -> Hashable:
    return d.shape.layers, d.shape.hidden, d.shape.parameters.total, d.engine


_KINDS: dict[str, Callable[[Deployment], Hashable]] = {"device": _device_of, "model": _model_of}


def _fit(target: Target, data: dict[str, Any]) -> Fit:
    spread = {basis: (float(low), float(high)) for basis, (low, high) in data["spread"].items()}
    return Fit(target, data["coefficients"], data["weights"], spread)


@cache
def _places(target: Target) -> list[list[float]]:
    return speed_model().fits[target].places()


@cache
def speed_model() -> SpeedModel:
    """The shipped speed model, read once."""
    text = (files("preroll.planning") / "data" / "speed.json").read_text("utf-8")
    return SpeedModel(json.loads(text))
