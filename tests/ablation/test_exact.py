"""The exact test against enumeration, published values, and its promises."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll.instruments.ablation import exact

DIFFERENCES = st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=9)


def enumerated_p(differences: list[float]) -> float:
    """Every sign vector, one after the other."""
    sizes = [abs(d) for d in differences]
    order = sorted(s for s in sizes if s > 0)
    rank = {s: order.index(s) + (order.count(s) + 1) / 2 for s in order} | {0.0: 0.0}
    seen = abs(sum(rank[abs(d)] * (1 if d > 0 else -1) for d in differences))
    vectors = list(itertools.product((-1, 1), repeat=len(sizes)))
    sums = [sum(v * rank[s] for v, s in zip(vector, sizes, strict=True)) for vector in vectors]
    return sum(abs(value) >= seen - 1e-9 for value in sums) / len(vectors)


@given(DIFFERENCES)
def test_p_is_the_share_of_sign_vectors_at_least_as_far_out(differences: list[float]) -> None:
    assert exact.p_value(differences) == pytest.approx(enumerated_p(differences))


def test_six_pairs_of_one_sign_decide_and_five_cannot() -> None:
    assert exact.p_value([1, 2, 3, 4, 5, 6]) == 2 / 64
    assert exact.interval([1, 2, 3, 4, 5, 6]) == (1, 6)
    assert exact.p_value([1, 2, 3, 4, 5]) > exact.ALPHA
    assert exact.interval([1, 2, 3, 4, 5]) is None


@pytest.mark.parametrize(("n", "critical"), [(6, 0), (8, 3), (10, 8), (15, 25), (20, 52), (25, 89)])
def test_critical_values_are_those_of_the_published_table(n: int, critical: int) -> None:
    """Two-sided 5 % points of the signed-rank sum (Wilcoxon and Wilcox 1964)."""
    counts = exact.null_counts([2 * r for r in range(1, n + 1)])
    tails = [2 * sum(counts[: 2 * (value + 1)]) / 2**n for value in (critical, critical + 1)]
    assert tails[0] <= 0.05 < tails[1]


def test_estimate_and_interval_are_those_of_a_published_example() -> None:
    """Depression scores of Hollander and Wolfe (1973, p. 29): estimate -0.46, interval of 94 %."""
    first = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    second = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    found = exact.paired([b - a for a, b in zip(first, second, strict=True)])
    assert found.estimate == pytest.approx(-0.46, abs=0.001)
    assert found.p == pytest.approx(0.0390625)
    assert (found.low, found.high) == (pytest.approx(-0.786), pytest.approx(-0.010))


@given(st.lists(st.integers(-1000, 1000), min_size=6, max_size=12, unique=True))
def test_the_interval_holds_the_shifts_that_the_test_does_not_reject(numbers: list[int]) -> None:
    """Without ties (no two differences as far from a shift), which times to the nanosecond have
    not; with ties the test may reject a little more than the interval leaves out."""
    values = [number + math.sqrt(2 + i) / 50 for i, number in enumerate(numbers)]
    bounds = exact.interval(values)
    assert bounds is not None
    low, high = bounds
    step = (high - low) / 7.0123
    for shift in (low + step, high - step):
        assert exact.p_value([v - shift for v in values]) > exact.ALPHA
    for shift in (low - 1e-6, high + 1e-6):
        assert exact.p_value([v - shift for v in values]) <= exact.ALPHA


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng, held, rounds = random.Random(5), 0, 2000
    for _ in range(rounds):
        bounds = exact.interval([rng.lognormvariate(0, 1) * rng.choice((-1, 1)) for _ in range(8)])
        held += bounds is not None and bounds[0] <= 0.0 <= bounds[1]
    assert held / rounds >= 0.95 - 0.015


def test_one_run_that_went_wrong_does_not_decide() -> None:
    usual = [0.1, -0.1, 0.05, -0.06, 0.02, -0.03]
    assert exact.p_value([*usual, 60.0]) > 0.3


def test_holm_keeps_the_order_and_multiplies_the_least_by_the_number_of_tests() -> None:
    assert exact.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert exact.holm([0.5, 0.9]) == [1.0, 1.0]
    assert exact.holm([]) == []


def test_no_pairs_are_no_result() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        exact.paired([])
