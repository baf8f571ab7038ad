"""Verdicts from paired seconds."""

from __future__ import annotations

import random

import pytest

from preroll.instruments.ablation import sequential
from preroll.instruments.ablation.sequential import Plan
from preroll.instruments.ablation.verdict import Outcome, Pair, Question, judge, pairs_needed


def pairs(savings: list[float], **segments: list[float]) -> list[Pair]:
    """Control runs of about 10 s; the segments' savings by name."""
    return [
        Pair(
            10.0 + i / 100,
            10.0 + i / 100 - saving,
            dict.fromkeys(segments, 5.0),
            {name: 5.0 - values[i] for name, values in segments.items()},
        )
        for i, saving in enumerate(savings)
    ]


def noise(n: int, spread: float, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0, spread) for _ in range(n)]


def test_a_clear_saving_is_named_with_its_interval() -> None:
    verdict = judge(pairs([1.0 + x for x in noise(8, 0.1)]), Question())
    assert verdict.total.outcome is Outcome.SAVES
    assert verdict.total.low_s is not None and verdict.total.high_s is not None
    assert verdict.total.low_s < 1.0 < verdict.total.high_s
    assert verdict.total.saving_s == pytest.approx(1.0, abs=0.1)


def test_a_clear_cost_is_named_so() -> None:
    assert judge(pairs([-1.0 + x for x in noise(8, 0.1)]), Question()).total.outcome == "COSTS"


def test_noise_is_inconclusive_and_says_how_many_pairs_would_decide() -> None:
    verdict = judge(pairs([0.1 + x for x in noise(8, 1.0)]), Question())
    assert verdict.total.outcome is Outcome.INCONCLUSIVE
    assert verdict.pairs_needed is not None and verdict.pairs_needed > 8


def test_as_many_pairs_as_were_said_to_be_needed_mostly_decide() -> None:
    rng = random.Random(4)
    differences = [0.5 + rng.gauss(0, 0.5) for _ in range(100)]
    needed = pairs_needed(differences, Question(), [10.0] * 100)
    assert needed is not None
    decided = 0
    for _ in range(200):
        found = judge(pairs([0.5 + rng.gauss(0, 0.5) for _ in range(10)]), Question())
        decided += found.is_decided
    assert decided / 200 > 0.6  # the sample size from the formula is about 9


def test_a_change_shown_to_be_smaller_than_the_margin_is_no_change() -> None:
    question = Question(margin=0.05, plan=Plan(sequential.looks(8)))
    assert judge(pairs(noise(8, 0.05, seed=2)), question).total.outcome is Outcome.NO_CHANGE
    assert judge(pairs(noise(8, 2.0, seed=2)), question).total.outcome is Outcome.INCONCLUSIVE


def test_segments_share_one_error_rate() -> None:
    one = [1.0 + x for x in noise(6, 0.1)]
    none = noise(6, 0.1, seed=3)
    alone = judge(pairs(one, a=one), Question(segments=("a",)))
    assert alone.segments[0].outcome is Outcome.SAVES
    many = judge(pairs(one, a=one, b=none, c=none), Question(segments=("a", "b", "c")))
    assert many.segments[0].p == pytest.approx(3 * 2 / 64)
    assert many.segments[0].outcome is Outcome.INCONCLUSIVE


def test_a_segment_that_a_run_did_not_have_took_no_time_there() -> None:
    with_it = [Pair(2.0, 1.0 - i / 1000, {"gone": 1.0}, {}) for i in range(6)]
    assert judge(with_it, Question(segments=("gone",))).segments[0].saving_s == 1.0


def test_what_may_still_cost_more_than_the_margin_is_not_called_no_change() -> None:
    """The interval must lie within the margin on both sides: 5 % of 10 s are 0.5 s."""
    question = Question(margin=0.05, plan=Plan(sequential.looks(8)))
    lopsided = [-1.2, 0.1, -0.8, 0.3, -0.9, 0.2, -0.1, 0.15]
    for sign in (1, -1):
        found = judge(pairs([sign * value for value in lopsided]), question).total
        assert found.low_s is not None and found.high_s is not None
        assert min(-found.low_s, found.high_s) < 0.5 < max(-found.low_s, found.high_s)
        assert found.outcome is Outcome.INCONCLUSIVE
