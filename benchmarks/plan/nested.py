"""Nested cross-validation of the speed model: nothing is chosen on the points that judge it.

    python benchmarks/plan/nested.py [tpot|ttft] [configuration|model|device]

Outer loop: a part (a model, a device, a tenth of the configurations) is held out. Inner loop, on
the other parts only: each is held out in turn, and the candidate (kernel length, ridge, share of
the correction) of least mean error is taken, fitted to all of them, and judged on the outer part.
A fit without parts a and b serves twice, as inner fold b of a and as inner fold a of b.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # spinning threads cost five times the CPU

import numpy as np

from preroll.planning import calibration_errors as errors
from preroll.planning.calibration import Measured, Target, measured_points
from preroll.planning.calibration_fit import (
    Array,
    Sample,
    correction,
    distances,
    physics_of,
    samples,
)

LENGTHS = (3.0, 6.0, 12.0)
RIDGES = {"tpot": (0.15, 0.5, 1.5), "ttft": (0.15, 0.4, 1.0)}
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
GROUPS: dict[str, tuple[errors.Group, int]] = {
    "configuration": (errors.configuration, 10),
    "model": (errors.model, 0),
    "device": (errors.device, 0),
}


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    length: float
    ridge: float
    share: float


@dataclass(frozen=True, slots=True)
class Nested:
    """Outer predictions, what each outer part chose, and what all parts together choose."""

    held: errors.HeldOut
    choices: dict[str, Candidate]
    shipped: Candidate


def every_candidate(
    inside: Sequence[Sample], outside: Sequence[Sample], target: Target
) -> dict[Candidate, Array]:
    """Seconds at `outside` by each candidate fitted to `inside`."""
    half, base, places = physics_of(inside, target)
    there, where = half.base(outside)
    logs = np.log(np.array([s.time_s for s in inside]) / base)
    within, between = distances(places, places), distances(where, places)
    found = {}
    for length in LENGTHS:
        gram, reach = np.exp(-within / length), np.exp(-between / length)
        for ridge in RIDGES[target]:
            step = reach @ correction(gram, logs, target, ridge)
            for share in SHARES:
                found[Candidate(length, ridge, share)] = there * np.exp(share * step)
    return found


def run(points: Sequence[Measured], target: Target, basis: str) -> Nested:
    group, folds = GROUPS[basis]
    parts = np.array(errors.parts_of(points, group, folds))
    rows = samples(points, target)
    times = np.array([row.time_s for row in rows])
    order = sorted(set(parts.tolist()))

    def fit(*out: str) -> tuple[Array, dict[Candidate, Array]]:
        inside = [row for row, p in zip(rows, parts, strict=True) if p not in out]
        chosen = np.isin(parts, out)
        outside = [row for row, is_out in zip(rows, chosen, strict=True) if is_out]
        return chosen, every_candidate(inside, outside, target)

    inner: dict[str, dict[Candidate, float]] = {part: defaultdict(float) for part in order}
    for a, b in combinations(order, 2):
        chosen, found = fit(a, b)
        for candidate, seconds in found.items():
            off = np.abs(seconds - times[chosen]) / times[chosen]
            for judged, outer in ((a, b), (b, a)):
                inner[outer][candidate] += float(off[parts[chosen] == judged].sum())
    predicted, choices = np.zeros(len(points)), {}
    for part in order:
        best = min(inner[part], key=lambda c: inner[part][c])
        chosen, found = fit(part)
        predicted[chosen], choices[part] = found[best], best
    together = min(inner[order[0]], key=lambda c: sum(inner[part][c] for part in order))
    held = errors.HeldOut(predicted, times, [group(m) for m in points])
    return Nested(held, choices, together)


def main(target: Target = "tpot", *bases: str) -> int:
    for basis in bases or GROUPS:
        result = run(measured_points(), target, basis)
        held = result.held
        print(f"{target} {basis}: {held.mape:.1%}, all choose {result.shipped}", flush=True)
        for part, choice in result.choices.items():
            print(f"   {part:<20} {choice}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))  # type: ignore[arg-type]
