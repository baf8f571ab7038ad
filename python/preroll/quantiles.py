"""Order statistics that say when there are too few samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from preroll.errors import RefusedError

CONFIDENCE = 0.95


def samples_needed(q: float, confidence: float = CONFIDENCE) -> int:
    """The least number of samples whose extreme lies beyond quantile `q` (0 < q < 1) with that
    confidence: n >= log(1 - confidence)/log(q) for upper quantiles, the mirror image for lower.

    p95 needs 59, p90 needs 29, p99 needs 299 (Wilks, 1941: distribution-free tolerance limits).
    """
    if not 0 < q < 1:
        raise ValueError(f"quantile {q}: allowed: between 0 and 1")
    return math.ceil(math.log(1 - confidence) / math.log(max(q, 1 - q)))


def quantile(samples: Sequence[float], q: float) -> float:
    """The nearest-rank quantile; RefusedError when the samples are too few for it."""
    needed = samples_needed(q)
    if len(samples) < needed:
        raise RefusedError(
            f"p{q * 100:g} of {len(samples)} samples is refused: it needs at least {needed}"
        )
    return sorted(samples)[math.ceil(q * len(samples)) - 1]


def median(samples: Sequence[float]) -> float:
    """The middle value (mean of the middle two); a description of any non-empty sample."""
    ordered = sorted(samples)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def median_interval(
    samples: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """The distribution-free interval of the median: order statistics k and n+1-k with binomial
    coverage of at least `confidence`. None when there are too few samples (fewer than six)."""
    ordered, n = sorted(samples), len(samples)
    below, best = 0.0, None
    for k in range(1, n // 2 + 1):
        below += math.comb(n, k - 1) / 2**n
        if 1 - 2 * below < confidence:
            break
        best = k
    return None if best is None else (ordered[best - 1], ordered[n - best])
