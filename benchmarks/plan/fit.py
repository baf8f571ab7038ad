"""Fit the speed model and write planning/data/speed.json: `python benchmarks/plan/fit.py`.

Errors and intervals are those of the outer loop of `nested`: some eight minutes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # spinning threads cost five times the CPU

import nested
import numpy as np

from preroll.planning import calibration_errors as errors
from preroll.planning.calibration import CORRECTION, LENGTH, Target, measured_points
from preroll.planning.calibration_fit import NOISE, samples, train

TARGET = Path(__file__).resolve().parents[2] / "python/preroll/planning/data/speed.json"


def fitted(target: Target) -> dict[str, Any]:
    points = measured_points()
    result = train(samples(points, target), target).exported()
    result["spread"], result["held_out"] = {}, {}
    for basis in nested.GROUPS:
        found = nested.run(points, target, basis)
        held = found.held
        result["spread"][basis] = [float(f"{x:.4g}") for x in errors.spread(held.logs)]
        result["held_out"][basis] = {
            "mape": round(held.mape, 4),
            "median": round(float(np.median(held.relative)), 4),
            "coverage": round(errors.coverage_of(held), 4),
        }
        shipped = nested.Candidate(LENGTH, NOISE[target], CORRECTION[target][basis])
        print(target, basis, result["held_out"][basis], result["spread"][basis])
        print(f"   all parts choose {found.shipped}; shipped {shipped}", flush=True)
    return result


def main() -> int:
    data = {
        "source": "made by benchmarks/plan/fit.py from silicon.csv.xz",
        "points": len(measured_points()),
        **{target: fitted(target) for target in ("tpot", "ttft")},
    }
    TARGET.write_text(json.dumps(data) + "\n")
    print(TARGET, TARGET.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
