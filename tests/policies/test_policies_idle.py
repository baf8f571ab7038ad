"""The idle rules: time-outs, ski rental, histogram, learned and written schedules."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preroll.control.policies import (
    FixedTimeout,
    HybridHistogram,
    LearnedSchedule,
    SkiRental,
    policy_for,
    policy_named,
)
from preroll.control.policies.hybrid_histogram import keep_window_s
from preroll.control.policies.ski_rental import best_timeout_s
from preroll.core import Observation, ScaleParameters
from preroll.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))
from policy_fleet import Fleet

IDLE = Observation(1000.0, 1.7e9, 1, 0, 0, 0, 0, 0.0, 0.0, (), 420.0)
ZERO_TO_ONE = ScaleParameters(0, 1)


def test_the_factory_follows_idle_timeout() -> None:
    assert isinstance(policy_for(ScaleParameters()), SkiRental)
    assert isinstance(policy_for(ScaleParameters(idle_timeout_s=60.0)), FixedTimeout)


def test_an_unknown_policy_is_named_with_those_that_exist() -> None:
    with pytest.raises(InputError, match=r"policy 'skirental' is unknown; there are ski-rental"):
        policy_named("skirental")


@pytest.mark.parametrize("policy", [FixedTimeout(), SkiRental()])
def test_the_stages_own_timeout_is_kept_to_the_second(policy: FixedTimeout | SkiRental) -> None:
    given = replace(ZERO_TO_ONE, idle_timeout_s=90.0)
    assert policy.decide(replace(IDLE, idle_s=89.9), given).replicas == 1
    assert policy.decide(replace(IDLE, idle_s=90.0), given).replicas == 0


def test_ski_rental_without_history_idles_for_three_quarters_of_a_start() -> None:
    assert SkiRental().decide(replace(IDLE, idle_s=314.0), ZERO_TO_ONE).replicas == 1
    assert SkiRental().decide(replace(IDLE, idle_s=315.0), ZERO_TO_ONE).replicas == 0


def after_gaps(gaps_s: list[float]) -> SkiRental:
    """A policy that saw each gap grow, end in a burst of short ones, and the next begin."""
    policy, seen = SkiRental(), ()
    for gap_s in gaps_s:
        policy.decide(replace(IDLE, idle_s=gap_s * 0.97, gaps_s=seen), ZERO_TO_ONE)
        seen = (*seen, gap_s, *[0.5] * 200)[-256:]
        policy.decide(replace(IDLE, in_flight=1, gaps_s=seen), ZERO_TO_ONE)
    return policy


def test_ski_rental_learns_from_long_gaps_and_bursts_do_not_wash_them_out() -> None:
    regular = after_gaps([380.0] * 8)
    assert regular.idle_timeout_s(IDLE, ZERO_TO_ONE) == 420.0, "waiting a little longer pays"
    rare = after_gaps([20_000.0] * 8)
    assert rare.idle_timeout_s(IDLE, ZERO_TO_ONE) == 105.0
    assert after_gaps([20_000.0] * 4).idle_timeout_s(IDLE, ZERO_TO_ONE) == 315.0


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 5000.0), min_size=1, max_size=60), st.floats(1.0, 1000.0))
def test_no_other_timeout_in_range_would_have_cost_less(gaps: list[float], cost: float) -> None:
    def paid(timeout: float) -> float:
        return sum(g if g <= timeout else timeout + cost for g in gaps)

    best = best_timeout_s(tuple(gaps), cost, cost / 4)
    assert cost / 4 <= best <= cost
    tried = [cost / 4 + i * cost * 0.75 / 50 for i in range(51)]
    assert paid(best) <= min(paid(t) for t in tried) * (1 + 1e-9) + 1e-6


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=60))
def test_ski_rental_without_history_costs_at_most_seven_thirds_of_the_optimum(
    gaps: list[float],
) -> None:
    timeout = SkiRental().idle_timeout_s(IDLE, ZERO_TO_ONE)
    paid = sum(g if g <= timeout else timeout + 420.0 for g in gaps)
    assert paid <= 7 / 3 * sum(min(g, 420.0) for g in gaps) + 1e-6


def test_the_histogram_prewarms_before_a_regular_arrival_and_releases_between() -> None:
    rng = random.Random(1)
    gaps = tuple(3600 + rng.uniform(-60, 60) for _ in range(50))
    prewarm_s, keep_s = keep_window_s(gaps)
    assert 3000 < prewarm_s < 3540 and 3660 < keep_s < 4200
    policy = HybridHistogram()
    early = replace(IDLE, gaps_s=gaps, idle_s=600.0)
    assert policy.decide(early, ZERO_TO_ONE).replicas == 0
    assert policy.decide(replace(early, num_ready=0, idle_s=3400.0), ZERO_TO_ONE).replicas == 1
    assert policy.decide(replace(early, idle_s=4300.0), ZERO_TO_ONE).replicas == 0


def test_the_histogram_keeps_for_its_range_until_it_is_representative() -> None:
    assert keep_window_s((5.0,) * 9) == (0.0, 14_400.0)
    flat = tuple(60.0 * i + 30 for i in range(240))
    assert keep_window_s(flat) == (0.0, 14_400.0)


def test_gaps_beyond_the_histogram_are_forecast_from_their_median() -> None:
    assert keep_window_s((20_000.0,) * 12) == pytest.approx((17_000.0, 23_000.0))


def test_a_learned_morning_spike_is_prewarmed_from_the_fourth_day_on() -> None:
    midnight = datetime(2026, 3, 2, tzinfo=ZoneInfo("UTC")).timestamp()
    fleet = Fleet(LearnedSchedule(), ZERO_TO_ONE, start_s=300.0, tick_s=60.0, wall_s=midnight)
    busy = lambda t: 1.0 if 8 * 3600 <= t % 86_400 < 9 * 3600 else 0.0  # noqa: E731
    ready_at_eight = []
    for _ in range(6 * 1440):
        fleet.tick(busy(fleet.now_s + 60))
        if (fleet.now_s + 60) % 86_400 == 8 * 3600:
            ready_at_eight.append(fleet.ready)
    assert ready_at_eight == [0, 0, 0, 1, 1, 1]


def test_a_written_prewarm_starts_at_its_minute_in_its_zone() -> None:
    parameters = replace(ZERO_TO_ONE, prewarm=("Mon-Fri 07:55 Europe/Berlin",))
    berlin = ZoneInfo("Europe/Berlin")
    monday = datetime(2026, 3, 30, 7, 54, 59, tzinfo=berlin).timestamp()  # summer time began
    cold = replace(IDLE, num_ready=0, idle_s=1e5)
    policy = SkiRental()
    assert policy.decide(replace(cold, wall_s=monday), parameters).replicas == 0
    assert policy.decide(replace(cold, wall_s=monday + 1), parameters).replicas == 1
    saturday = datetime(2026, 4, 4, 7, 56, tzinfo=berlin).timestamp()
    assert policy.decide(replace(cold, wall_s=saturday), parameters).replicas == 0
