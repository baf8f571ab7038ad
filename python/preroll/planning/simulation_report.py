"""What a comparison of policies says: a table for people, a dictionary for programs."""

from __future__ import annotations

from typing import Any

from preroll.planning.report import plural
from preroll.planning.simulator import Outcome

Labelled = list[tuple[str, Outcome]]

COLUMNS = (
    "late",
    "first byte p95",
    "cold starts",
    "idle",
    "over optimum",
    "refused",
    "timed out",
    "wasted service",
)
LEGEND = (
    "late: first byte after the limit, or never. first byte p95: of the worst endpoint.\n"
    "idle: replica-hours ready with nothing to do. over optimum: idle time and starts, over what\n"
    "one who knows the future pays. wasted service: given to clients that had left."
)


def _cells(outcome: Outcome) -> list[str]:
    p95_s, ratio = outcome.worst("first_byte", "p95_s"), outcome.cost_over_optimum
    failed = outcome.total("refused") + outcome.total("expired")
    return [
        f"{100 * outcome.late_share:.2f} %",
        "-" if p95_s is None else f"{p95_s:.2f} s",
        f"{outcome.cold_starts:,}",
        f"{outcome.total('idle_s') / 3600:,.2f} h",
        "-" if ratio is None else f"{ratio:.2f} x",
        f"{failed:,.0f}",
        f"{outcome.total('timed_out'):,.0f}",
        f"{100 * outcome.wasted_share:.1f} %",
    ]


def rows(outcomes: Labelled) -> list[list[str]]:
    """Header and one row per run."""
    return [["policy", *COLUMNS], *([label, *_cells(o)] for label, o in outcomes)]


def table(outcomes: Labelled) -> str:
    """The comparison as aligned text, with what was simulated above and a legend below."""
    first = outcomes[0][1]
    cells = rows(outcomes)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [
        f"{first.total('arrivals'):,.0f} requests to {plural(len(first.endpoints), 'endpoint')} in "
        f"{first.end_s / 3600:,.2f} h; a start is worth {first.start_cost_s:,.0f} s of idling",
        "",
    ]
    for row in cells:
        aligned = [row[0].ljust(widths[0])]
        aligned += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(aligned))
    return "\n".join([*lines, "", LEGEND])


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Every figure, endpoint by endpoint; times in seconds. The timelines are left out."""
    endpoints = {
        name: {key: value for key, value in report.items() if key != "timeline"}
        for name, report in outcome.endpoints.items()
    }
    return {
        "policy": outcome.policy,
        "late_share": outcome.late_share,
        "cold_starts": outcome.cold_starts,
        "idle_s": outcome.total("idle_s"),
        "cost_s": outcome.cost_s,
        "optimum_s": outcome.optimum_s,
        "cost_over_optimum": outcome.cost_over_optimum,
        "start_cost_s": outcome.start_cost_s,
        "wasted_share": outcome.wasted_share,
        "end_s": outcome.end_s,
        "events": outcome.events,
        "endpoints": endpoints,
    }
