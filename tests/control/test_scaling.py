"""Observation, idle time, schedules and bounds of the autoscaler, on manual clocks."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from preroll.control.autoscaler import ReplicaCounts, StageScaler
from preroll.control.health import HealthPolicy, HealthRecord, start_delay_s
from preroll.control.schedule import HOLD_S, Prewarm
from preroll.core import Decision, Observation, ScaleParameters

BERLIN = ZoneInfo("Europe/Berlin")
QUIET = datetime(2027, 1, 3, 12, 0, tzinfo=BERLIN).timestamp()


class Fixed:
    """A policy that answers a given number."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
        return Decision(self.replicas, "fixed")


def state(**changes: Any) -> dict[str, Any]:
    base = {"in_flight": 0, "queued": 0, "arrivals_total": 0, "concurrency_ns": 0}
    return {**base, "last_activity_ns": 0, **changes}


def wall(*when: int) -> float:
    return datetime(*when, tzinfo=BERLIN).timestamp()  # type: ignore[arg-type]


def scaler(replicas: int = 0, **parameters: Any) -> StageScaler:
    return StageScaler(ScaleParameters(**{"min_replicas": 0, **parameters}), Fixed(replicas))


ONE = ReplicaCounts(1, 0, ready_s=0.0)


def test_concurrency_is_the_mean_between_two_ticks_and_arrivals_are_new_ones() -> None:
    stage = scaler()
    stage.observe(state(arrivals_total=10, concurrency_ns=0), ONE, 100.0, QUIET)
    seen = stage.observe(
        state(arrivals_total=14, concurrency_ns=6_000_000_000, in_flight=1), ONE, 102.0, QUIET
    )
    assert (seen.concurrency, seen.arrivals, seen.in_flight) == (3.0, 4, 1)


def test_an_answer_that_is_late_does_not_look_like_more_demand() -> None:
    """One request all the time; the second answer took 5 ms, the first 50 ms."""
    stage = scaler()
    stage.observe(state(in_flight=1, concurrency_ns=0), ONE, 100.05, QUIET, 100.0)
    integral_ns = round(1.004e9)  # the state was taken at 100.0 and at 101.004
    seen = stage.observe(state(in_flight=1, concurrency_ns=integral_ns), ONE, 101.005, QUIET, 101.0)
    assert 0.99 < seen.concurrency <= 1.0


def test_a_door_that_restarted_gives_no_negative_rate() -> None:
    stage = scaler()
    stage.observe(state(arrivals_total=1000, concurrency_ns=10**15), ONE, 100.0, QUIET)
    seen = stage.observe(state(arrivals_total=2, concurrency_ns=5, in_flight=2), ONE, 101.0, QUIET)
    assert (seen.arrivals, seen.concurrency, seen.idle_s) == (0, 2.0, 0.0)


def test_idle_time_runs_from_the_last_activity_or_from_readiness() -> None:
    stage = scaler()
    assert stage.observe(state(last_activity_ns=90 * 10**9), ONE, 100.0, QUIET).idle_s == 10.0
    late = ReplicaCounts(1, 0, ready_s=99.0)
    assert stage.observe(state(last_activity_ns=90 * 10**9), late, 101.0, QUIET).idle_s == 2.0


def test_a_stage_without_any_request_idles_from_the_first_look() -> None:
    stage = scaler()
    assert stage.observe(state(), ONE, 100.0, QUIET).idle_s == 0.0
    assert stage.observe(state(), ONE, 130.0, QUIET).idle_s == 30.0


def test_gaps_are_measured_between_quiet_and_the_next_arrival() -> None:
    stage = scaler()
    stage.observe(state(last_activity_ns=100 * 10**9, arrivals_total=1), ONE, 101.0, QUIET)
    stage.observe(
        state(last_activity_ns=160 * 10**9, arrivals_total=2, in_flight=1), ONE, 161.0, QUIET
    )
    seen = stage.observe(state(last_activity_ns=163 * 10**9, arrivals_total=2), ONE, 164.0, QUIET)
    assert seen.gaps_s == (60.0,)


def test_bounds_hold_whatever_the_policy_says() -> None:
    seen = scaler().observe(state(), ONE, 1.0, QUIET)
    assert scaler(99, max_replicas=3).decide(seen).replicas == 3
    assert scaler(0, min_replicas=2, max_replicas=3).decide(seen).replicas == 2


def test_demand_at_zero_wants_one_at_once() -> None:
    assert scaler(max_replicas=2).demand(0).replicas == 1
    assert scaler(max_replicas=2).demand(5).replicas == 2


def test_a_schedule_holds_a_replica_through_its_window_only() -> None:
    stage = scaler(prewarm=("Mon-Fri 07:55 Europe/Berlin",))

    def wanted(when: float) -> int:
        return stage.decide(stage.observe(state(), ONE, 1.0, when)).replicas

    monday = wall(2027, 1, 4, 7, 55)
    assert [wanted(monday + d) for d in (-1, 0, HOLD_S - 1, HOLD_S + 1)] == [0, 1, 1, 0]
    assert wanted(wall(2027, 1, 3, 8, 0)) == 0  # a Sunday
    assert "prewarm Mon-Fri" in (stage.decide(stage.observe(state(), ONE, 1.0, monday)).reason)


@pytest.mark.parametrize("day", [(2027, 3, 28), (2027, 10, 31)])
def test_a_schedule_in_the_hour_that_dst_skips_or_repeats_fires_once(day: tuple[int, ...]) -> None:
    prewarm = Prewarm(["daily 02:30 Europe/Berlin"])
    midnight = wall(*day, 0, 0)
    minutes = [prewarm.active(midnight + 60 * m) is not None for m in range(24 * 60)]
    assert sum(minutes) == HOLD_S / 60
    begins = [m for m in range(1, 24 * 60) if minutes[m] and not minutes[m - 1]]
    assert len(begins) == 1


@pytest.mark.parametrize("days", [-400, -1 / 24, 1 / 24, 400])
def test_a_jump_of_the_wall_clock_changes_no_duration(days: float) -> None:
    stage = scaler(replicas=1)
    stage.observe(state(last_activity_ns=90 * 10**9), ONE, 100.0, QUIET)
    seen = stage.observe(state(last_activity_ns=90 * 10**9), ONE, 101.0, QUIET + days * 86400)
    assert seen.idle_s == 11.0
    assert stage.decide(seen).replicas == 1


def test_a_wall_clock_beyond_the_calendar_is_no_schedule_and_no_error() -> None:
    prewarm = Prewarm(["daily 06:00 UTC"])
    assert prewarm.active(-1e18) is None
    assert prewarm.active(1e18) is None


def test_start_probes_are_fast_at_first_and_then_a_share_of_the_start() -> None:
    assert start_delay_s(0.0) == 0.005
    assert start_delay_s(10.0) == pytest.approx(0.1)
    assert start_delay_s(3600.0) == 0.5


def test_a_ready_replica_is_condemned_only_when_its_probes_have_failed_for_long() -> None:
    record = HealthRecord(HealthPolicy(condemn_after_s=10.0))
    assert not record.failed(0.0, 5.0) and not record.failed(6.0, 9.9)
    record.succeeded()
    assert not record.failed(20.0, 25.0) and not record.failed(26.0, 29.0)
    assert record.failed(29.0, 30.0)
    assert record.delay_s() < HealthRecord(HealthPolicy()).delay_s()


def test_one_probe_that_hangs_for_long_condemns_nothing_and_probes_fit_the_patience() -> None:
    record = HealthRecord(HealthPolicy().within(2.0))
    assert (record.policy.interval_s, record.policy.timeout_s) == (2.0, 2.0)
    assert not record.failed(0.0, 60.0)
    assert record.failed(60.5, 61.0)
