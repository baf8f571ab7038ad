"""Exact statistics of paired differences: the signed-rank sign-flip test and its interval.

Under the null hypothesis the order of control and variant within a pair is arbitrary, so each
difference keeps its size and has either sign with probability 1/2: all 2**n sign vectors are
equally likely. The statistic is the sum of the ranks of the positive differences (Wilcoxon 1945),
so a single slow run cannot decide; its inversion gives the Hodges-Lehmann (1963) estimate and an
exact interval. Nothing is approximated, and no distribution of the times is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from preroll.quantiles import CONFIDENCE, median

ALPHA = 1 - CONFIDENCE
# The least number with which a two-sided 5 % test can ever reject: 2/2**6 = 0.031, 2/2**5 = 0.063.
MIN_PAIRS = 6


@dataclass(frozen=True, slots=True)
class Paired:
    """The result for one set of differences, in their unit.

    `estimate`: Hodges-Lehmann; `low`, `high`: exact bounds of at least the confidence asked for,
    None when there are too few pairs for any; `p`: two-sided.
    """

    pairs: int
    estimate: float
    low: float | None
    high: float | None
    p: float


def doubled_ranks(magnitudes: Sequence[float]) -> list[int]:
    """Twice the mid-rank of each magnitude: whole numbers with ties too; a zero has rank 0 and
    takes none from the others (Wilcoxon's treatment)."""
    order = sorted((m, i) for i, m in enumerate(magnitudes) if m > 0)
    ranks = [0] * len(magnitudes)
    at = 0
    while at < len(order):
        end = at
        while end < len(order) and order[end][0] == order[at][0]:
            end += 1
        for _, i in order[at:end]:
            ranks[i] = at + 1 + end
        at = end
    return ranks


def null_counts(ranks2: Sequence[int]) -> list[int]:
    """How many of the 2**n sign vectors give each value of the doubled rank sum."""
    counts = [1]
    for rank in ranks2:
        grown = counts + [0] * rank
        for value, number in enumerate(counts):
            grown[value + rank] += number
        counts = grown
    return counts


def distance(positive: Sequence[bool], ranks2: Sequence[int]) -> int:
    """How far the rank sum is from its centre: |sum of signed doubled ranks|."""
    return abs(sum(r if p else -r for p, r in zip(positive, ranks2, strict=True)))


def p_value(differences: Sequence[float]) -> float:
    """Two-sided: the share of sign vectors at least as far from the centre; 1 with no pairs."""
    ranks2 = doubled_ranks([abs(d) for d in differences])
    seen = distance([d > 0 for d in differences], ranks2)
    counts, whole = null_counts(ranks2), sum(ranks2)
    far = sum(n for value, n in enumerate(counts) if abs(2 * value - whole) >= seen)
    return far / float(1 << len(ranks2))


def walsh(differences: Sequence[float]) -> list[float]:
    """The n(n + 1)/2 averages of two differences (each with itself too), in order."""
    n = len(differences)
    return sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))


@cache
def _depth(n: int, alpha: float) -> int:
    """How many Walsh averages the interval may leave out at each end; 0: no interval exists."""
    counts = null_counts([2 * rank for rank in range(1, n + 1)])
    below, depth = 0, 0
    for value in range(0, len(counts), 2):
        below += counts[value]
        if 2 * below > alpha * 2**n:
            break
        depth += 1
    return depth


def interval(differences: Sequence[float], alpha: float = ALPHA) -> tuple[float, float] | None:
    """Exact bounds of the shift: the `depth`-th Walsh average from either end.

    None with fewer pairs than `alpha` can be had with (6 for 5 %).
    """
    depth = _depth(len(differences), alpha)
    if depth == 0:
        return None
    averages = walsh(differences)
    return averages[depth - 1], averages[-depth]


def paired(differences: Sequence[float], alpha: float = ALPHA) -> Paired:
    """Estimate, interval and p of the differences. Raises ValueError when there are none."""
    if not differences:
        raise ValueError("no pairs")
    bounds = interval(differences, alpha) or (None, None)
    return Paired(
        len(differences), median(walsh(differences)), bounds[0], bounds[1], p_value(differences)
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p of a family (Holm 1979): reject where it is at most alpha, and the chance of any
    false rejection in the family stays below alpha, however the tests depend on each other."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, worst = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = worst
    return adjusted
