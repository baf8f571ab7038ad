"""Two runs side by side: each quantile's difference with its interval, from the raw records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from preroll.errors import InputError
from preroll.instruments.intervals import Interval, bootstrap_difference
from preroll.instruments.load.records import Raw, read
from preroll.instruments.load.result import e2e_ms, tpot_ms, ttft_ms
from preroll.quantiles import samples_needed

METRICS = {"ttft": ttft_ms, "tpot": tpot_ms, "e2e": e2e_ms}
QUANTILES = {"p50": 0.5, "p95": 0.95}


@dataclass(frozen=True, slots=True)
class Difference:
    """second − first, in milliseconds; `verdict` is "faster", "slower" or "no difference shown"."""

    name: str
    first: float
    change: Interval

    @property
    def verdict(self) -> str:
        if self.change.low > 0:
            return "slower"
        return "faster" if self.change.high < 0 else "no difference shown"


def records_of(path: Path) -> Raw:
    """The records of a result: its folder or the file itself."""
    return read(path / "records.ndjson" if path.is_dir() else path)


def compare(first: Raw, second: Raw) -> list[Difference]:
    """Differences of every metric that both have enough samples for. InputError if none has."""
    found = []
    for name, of in METRICS.items():
        a, b = ([v for v in map(of, raw.ok) if v is not None] for raw in (first, second))
        for label, q in QUANTILES.items():
            if min(len(a), len(b)) >= max(6, samples_needed(q) if q > 0.5 else 0):
                change = bootstrap_difference(a, b, lambda s, q=q: _rank(s, q))  # type: ignore[misc]
                found.append(Difference(f"{name} {label}", _rank(a, q), change))
    if not found:
        raise InputError("compare: too few successful requests in one of the runs; p50 needs 6")
    return found


def _rank(samples: Sequence[float], q: float) -> float:
    return sorted(samples)[max(0, math.ceil(q * len(samples)) - 1)]


def table(differences: Sequence[Difference]) -> str:
    lines = ["| | A ms | B − A ms | 95 % interval | |", "|---|---|---|---|---|"]
    for d in differences:
        bounds = f"[{d.change.low:+.2f}, {d.change.high:+.2f}]"
        lines.append(
            f"| {d.name} | {d.first:.2f} | {d.change.value:+.2f} | {bounds} | {d.verdict} |"
        )
    return "\n".join(lines)
