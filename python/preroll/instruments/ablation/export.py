"""The report of an experiment as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from preroll.instruments.ablation.report import Report


def to_json(report: Report) -> dict[str, Any]:
    """Seconds, bytes and counts under the names of the types; `outcome` on top."""
    data = dataclasses.asdict(report)
    if report.prediction is not None and report.verdict is not None:
        total = report.verdict.total
        data["prediction"]["error"] = report.prediction.error(total)
        data["prediction"]["is_right"] = report.prediction.is_right(total)
    return {"outcome": report.outcome, **data}
