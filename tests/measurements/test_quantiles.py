"""Order statistics: published sample sizes, coverage by simulation, refusals."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll.errors import RefusedError
from preroll.quantiles import median, median_interval, quantile, samples_needed


@pytest.mark.parametrize(
    ("q", "needed"), [(0.95, 59), (0.9, 29), (0.99, 299), (0.5, 5), (0.05, 59)]
)
def test_the_sample_sizes_are_those_of_tolerance_limits(q: float, needed: int) -> None:
    assert samples_needed(q) == needed


def test_a_quantile_that_the_samples_cannot_support_is_refused_with_the_number() -> None:
    with pytest.raises(RefusedError, match="p95 of 58 samples is refused: it needs at least 59"):
        quantile([1.0] * 58, 0.95)
    assert quantile(list(range(1, 60)), 0.95) == 57


@pytest.mark.parametrize("q", [0.0, 1.0, -1.0, 2.0])
def test_a_quantile_is_between_0_and_1(q: float) -> None:
    with pytest.raises(ValueError, match="allowed"):
        samples_needed(q)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_the_median_is_the_standard_one(samples: list[float]) -> None:
    assert median(samples) == statistics.median(samples)


def test_the_interval_of_the_median_needs_six_samples() -> None:
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([6, 1, 2, 3, 4, 5]) == (1, 6)


def test_the_interval_of_the_median_has_the_published_ranks() -> None:
    # Ranks 6 and 15 for n = 20, 10 and 21 for n = 30 (Conover, table of the sign test).
    assert median_interval(list(range(1, 21))) == (6, 15)
    assert median_interval(list(range(1, 31))) == (10, 21)


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    rng = random.Random(7)
    covered = 0
    for _ in range(2000):
        interval = median_interval([rng.expovariate(1.0) for _ in range(15)])
        assert interval is not None
        covered += interval[0] <= 0.6931 <= interval[1]
    assert covered / 2000 > 0.94
