"""Intervals for what instruments measure; the standard library is enough.

Every function says what it assumes. Confidence is 95 % unless said otherwise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and the bounds that hold the truth with the confidence asked for; one unit."""

    value: float
    low: float
    high: float


def z_of(confidence: float = CONFIDENCE) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def quantile_interval(
    samples: Sequence[float],
    q: float,
    confidence: float = CONFIDENCE,
    num_clusters: int | None = None,
) -> Interval:
    """Nearest-rank quantile with its distribution-free interval (order statistics, David and
    Nagaraja 2003, 7.1; normal approximation of the binomial ranks).

    Assumes independent samples, or `num_clusters` independent groups whose members are alike (the
    gaps of one stream): then only the groups count as evidence.
    """
    ordered, n = sorted(samples), len(samples)
    if n == 0:
        raise ValueError("no samples")
    evidence = n if num_clusters is None else max(1, min(n, num_clusters))
    half = n * z_of(confidence) * math.sqrt(q * (1 - q) / evidence)
    rank = max(1, math.ceil(q * n))
    low = max(1, math.floor(q * n - half))
    high = min(n, math.ceil(q * n + half) + 1)
    return Interval(ordered[rank - 1], ordered[low - 1], ordered[high - 1])


def share_interval(
    hits: float, trials: float, confidence: float = CONFIDENCE, design_effect: float = 1.0
) -> Interval:
    """A share of `trials` with its Wilson (1927) interval.

    `design_effect` (>= 1) divides the trials: correlated outcomes carry less information.
    """
    if trials <= 0:
        return Interval(math.nan, 0.0, 1.0)
    share, n, z = hits / trials, trials / max(1.0, design_effect), z_of(confidence)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def design_effect(outcomes: Sequence[bool], num_batches: int = 10) -> float:
    """How much the variance of a share exceeds that of independent outcomes: the variance of
    batch means (in the order of the outcomes) over the binomial one. At least 1; 1 when there are
    too few outcomes (under 4 a batch) or none differ."""
    size = len(outcomes) // num_batches
    if size < 4:
        return 1.0
    means = [sum(outcomes[i * size : (i + 1) * size]) / size for i in range(num_batches)]
    share = sum(means) / num_batches
    expected = share * (1 - share) / size
    if expected == 0:
        return 1.0
    variance = sum((m - share) ** 2 for m in means) / (num_batches - 1)
    return max(1.0, variance / expected)


def pool_monotone(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` (weighted least squares): pool adjacent
    violators (Ayer et al. 1955)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (v1, w1, n1), (v2, w2, n2) = blocks[-2:]
            total = w1 + w2
            blocks[-2:] = [((v1 * w1 + v2 * w2) / total, total, n1 + n2)]
    return [value for value, _, count in blocks for _ in range(count)]


def bootstrap_difference(
    first: Sequence[float],
    second: Sequence[float],
    statistic: Callable[[Sequence[float]], float],
    rounds: int = 1000,
    seed: int = 0,
) -> Interval:
    """statistic(second) − statistic(first) with its percentile bootstrap interval (Efron 1979).

    Assumes that the samples of each are independent; at most 2,000 of each are resampled.
    """
    rng = random.Random(seed)
    a, b = (list(s) if len(s) <= 2000 else rng.sample(list(s), 2000) for s in (first, second))
    drawn = sorted(
        statistic(rng.choices(b, k=len(b))) - statistic(rng.choices(a, k=len(a)))
        for _ in range(rounds)
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = drawn[int(tail * rounds)], drawn[min(rounds - 1, int((1 - tail) * rounds))]
    return Interval(statistic(second) - statistic(first), low, high)
