"""Accuracy of the speed model on held-out data, beside AIConfigurator on the same rows.

    python benchmarks/plan/accuracy.py          refits every fold of held-out configurations

Held-out models and devices are 14 more fits per target: they are made by fit.py and read from
speed.json. AIConfigurator's estimates are read from aic_tpot.json (made by aic_rows.py, since it
lives in another environment). Writes build/bench/plan.json.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from importlib.resources import files
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # spinning threads cost five times the CPU

import nested
import numpy as np
from record import merge

from preroll.planning import calibration_errors as errors
from preroll.planning.calibration import Measured, measured_points

AIC = Path(__file__).with_name("aic_tpot.json")


def beside(held: errors.HeldOut) -> dict[str, float]:
    """Both models' MAPE on the rows that AIConfigurator gives a number for."""
    record = json.loads(AIC.read_text())
    numbers = {key_of(m): n for n, m in enumerate(measured_points())}
    asked = {k: v for k, v in record["tpot_ms"].items() if k in numbers}
    rows = [numbers[k] for k in asked]
    theirs = np.array(list(asked.values())) / 1e3
    measured = held.measured[rows]
    off = np.abs(theirs - measured) / measured
    return {
        "tpot_mape_aic_same_rows": float(off.mean()),
        "tpot_median_aic_same_rows": float(np.median(off)),
        "tpot_mape_ours_same_rows": float(held.relative[rows].mean()),
        "tpot_median_ours_same_rows": float(np.median(held.relative[rows])),
        "aic_rows": len(rows),
        "aic_rows_refused": sum(k in numbers for k in record["refused"]),
    }


def key_of(m: Measured) -> str:
    """The point as aic_rows.py writes it."""
    p, d = m.point, m.point.deployment
    sizes = f"{d.num_devices} {d.ep} {int(d.dp_attention)}"
    load = f"{p.concurrency:g} {p.isl:g} {p.osl:g}"
    return f"{d.shape.name} {d.engine} {d.device.key} {d.shape.precision} {sizes} {load}"


def by_group(held: errors.HeldOut) -> list[tuple[str, int, float]]:
    """MAPE per device and engine."""
    groups = defaultdict(list)
    for m, error in zip(measured_points(), held.relative, strict=True):
        d = m.point.deployment
        groups[f"{d.device.key} {d.engine}"].append(float(error))
    return [(name, len(found), float(np.mean(found))) for name, found in sorted(groups.items())]


def main() -> int:
    held = errors.hold_out(measured_points(), "tpot", *nested.GROUPS["configuration"])
    shipped = json.loads((files("preroll.planning") / "data" / "speed.json").read_text("utf-8"))
    figures: dict[str, float | str | None] = {
        "tpot_mape_heldout": held.mape,
        "tpot_median_heldout": float(np.median(held.relative)),
        "tpot_interval_coverage": errors.coverage_of(held),
        "tpot_points": len(held.groups),
        "tpot_configurations": len(set(held.groups)),
        "tpot_mape_heldout_models": shipped["tpot"]["held_out"]["model"]["mape"],
        "tpot_mape_heldout_devices": shipped["tpot"]["held_out"]["device"]["mape"],
        "ttft_mape_heldout": shipped["ttft"]["held_out"]["configuration"]["mape"],
        "ttft_median_heldout": shipped["ttft"]["held_out"]["configuration"]["median"],
        "ttft_interval_coverage": shipped["ttft"]["held_out"]["configuration"]["coverage"],
        **beside(held),
    }
    for name, value in figures.items():
        print(f"{name:<28} {value:.4g}")
    for name, count, error in by_group(held):
        print(f"   {name:<16} {count:>5} points   MAPE {error:.1%}")
    print(merge("plan", figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
