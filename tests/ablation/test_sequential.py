"""Group-sequential bounds: the promised error rate, counted and simulated."""

from __future__ import annotations

import itertools
import random

import pytest

from preroll.instruments.ablation import exact, sequential
from preroll.instruments.ablation.sequential import Plan


def test_looks_begin_at_eight_and_end_at_the_most() -> None:
    assert sequential.looks(8) == (8,)
    assert sequential.looks(20) == (8, 12, 16, 20)
    assert len(sequential.looks(500)) == sequential.MOST_LOOKS
    with pytest.raises(ValueError, match="8"):
        sequential.looks(7)


def test_what_is_spent_grows_to_alpha_and_not_beyond() -> None:
    shares = [sequential.spent(i / 10) for i in range(11)]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == pytest.approx(0.05)


def test_of_all_sign_vectors_at_most_alpha_ever_rejects() -> None:
    """Counted, not simulated: every sign vector of these sizes, each through the real code."""
    plan = Plan((6, 8, 11))
    sizes = [0.3, 1.2, 0.7, 2.5, 0.1, 0.9, 1.9, 0.2, 4.0, 0.6, 1.1]
    stopped = sum(
        any(
            sequential.rejects([s * v for s, v in zip(sizes, signs, strict=True)][:n], 0.0, plan)
            for n in plan.at
        )
        for signs in itertools.product((-1, 1), repeat=len(sizes))
    )
    assert 0.03 < stopped / 2 ** len(sizes) <= 0.05


def run_until_stopped(rng: random.Random, shift: float, plan: Plan) -> int | None:
    """At how many pairs the experiment rejects; None when it never does."""
    values: list[float] = []
    for n in plan.at:
        while len(values) < n:
            values.append(shift + rng.gauss(0, 1) * rng.choice((1, 1, 1, 4)))
        if sequential.rejects(values, 0.0, plan):
            return n
    return None


def test_simulated_experiments_without_an_effect_are_rarely_called_one() -> None:
    rng, plan, rounds = random.Random(7), Plan(sequential.looks(12)), 1500
    wrong = sum(run_until_stopped(rng, 0.0, plan) is not None for _ in range(rounds))
    assert wrong / rounds <= 0.05 + 0.012


@pytest.mark.slow
def test_simulated_long_experiments_with_sampled_vectors_keep_their_rate_too() -> None:
    rng, plan, rounds = random.Random(8), Plan(sequential.looks(24)), 400
    assert plan.at[-1] > sequential.ENUMERATED
    wrong = sum(run_until_stopped(rng, 0.0, plan) is not None for _ in range(rounds))
    assert wrong / rounds <= 0.05 + 0.022


def test_looking_as_often_without_bounds_would_be_wrong_more_often() -> None:
    """Why the bounds are there: the plain test at every look exceeds its 5 %."""
    rng, at, rounds, wrong = random.Random(9), (8, 11, 14, 17, 20), 2000, 0
    for _ in range(rounds):
        values = [rng.gauss(0, 1) for _ in range(at[-1])]
        wrong += any(exact.p_value(values[:n]) <= 0.05 for n in at)
    assert wrong / rounds > 0.08


def test_a_large_effect_stops_at_the_first_look() -> None:
    plan = Plan(sequential.looks(20))
    assert run_until_stopped(random.Random(1), 30.0, plan) == 8


def test_the_repeated_interval_is_wider_than_the_plain_one_and_holds_the_shift() -> None:
    plan, rng = Plan(sequential.looks(12)), random.Random(3)
    values = [2.0 + rng.gauss(0, 1) for _ in range(12)]
    bounds, plain = sequential.interval(values, plan), exact.interval(values)
    assert bounds is not None and plain is not None
    assert bounds[0] <= plain[0] < 2.0 < plain[1] <= bounds[1]


def test_nothing_is_said_before_the_first_look() -> None:
    plan = Plan(sequential.looks(12))
    assert sequential.interval([1.0] * 7, plan) is None
    assert not sequential.rejects([1.0, 2.0, 3.0], 0.0, plan)
