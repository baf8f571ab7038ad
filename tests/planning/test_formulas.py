"""Limits, ranges and exact properties of the formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preroll.core import Preparedness
from preroll.errors import InputError
from preroll.planning.formulas import (
    coldstart,
    decode,
    kv,
    queueing,
    retries,
    speech,
    spike,
    start,
    tail,
    transfer,
)

OUT_OF_RANGE: list[Callable[[], object]] = [
    lambda: transfer.floor_s(-1, 1e9),
    lambda: transfer.floor_s(1, 0),
    lambda: transfer.floor_s(math.nan, 1),
    lambda: transfer.floor_s(math.inf, 1),
    lambda: transfer.floor_s(10**400, 1),
    lambda: transfer.floor_s("7", 1),  # type: ignore[arg-type]
    lambda: transfer.floor_ratio(0, 2, 1, 2),
    lambda: start.bill(Preparedness.RESIDENT, 0),
    lambda: start.saving_s({"a": 1.0}, "b", 0.0),
    lambda: start.saving_s({"a": 1.0}, "a", 2.0),
    lambda: coldstart.poisson_probability(0, 600),
    lambda: coldstart.poisson_probability(1, -1),
    lambda: coldstart.worst_rate(0),
    lambda: coldstart.Gaps([]),
    lambda: coldstart.Gaps([1.0, -1.0]),
    lambda: coldstart.Gaps([1.0]).cost(-1, 1),
    lambda: coldstart.Gaps([1.0]).best(-1),
    lambda: queueing.mm1_stretch(1.0),
    lambda: queueing.mm1_stretch(-0.1),
    lambda: queueing.variance_factor(-1),
    lambda: queueing.erlang_c(0.5, 0),
    lambda: queueing.erlang_c(0.5, 2.5),  # type: ignore[arg-type]
    lambda: queueing.erlang_c(1.2, 4),
    lambda: queueing.mgk_wait_quantile_s(0.5, 1, 1, 4, 1.0),
    lambda: spike.backlog(8, 4, 30),
    lambda: spike.backlog(6, 0, 30),
    lambda: spike.replicas_to_recover(6, 4, 30, 30),
    lambda: retries.outcome(retries.Spike(0, 4, 30), retries.Clients(None)),
    lambda: retries.outcome(retries.Spike(6, 4, 30), retries.Clients(1, -1)),
    lambda: decode.memory_step_s(0, 0, 1),
    lambda: decode.stream_tokens_per_s(0, 1, 1, 1),
    lambda: decode.largest_batch(0, 1, 1, 1),
    lambda: tail.meets_slow(-1),
    lambda: tail.meets_slow(1, 1.5),
    lambda: tail.percentile_needed(0, 0.05),
    lambda: speech.windows(10, 5),
    lambda: speech.windows(10, 31),
    lambda: speech.exponent(30, 1, 30, 1),
    lambda: kv.dtype_bytes("fp9"),
    lambda: kv.copies(8, 0),
    lambda: kv.pool_bytes(1e9, 1e8, 0, 0),
]


@pytest.mark.parametrize("case", range(len(OUT_OF_RANGE)))
def test_outside_its_validity_a_formula_raises_one_line(case: int) -> None:
    with pytest.raises(InputError) as raised:
        OUT_OF_RANGE[case]()
    assert len(str(raised.value).splitlines()) == 1


def test_nothing_to_move_takes_no_time() -> None:
    assert transfer.floor_s(0, 1e9) == 0


def test_a_service_without_load_never_queues() -> None:
    assert queueing.mm1_stretch(0) == 1
    assert queueing.mgk_wait_s(0, 1, 1, 4) == 0
    assert queueing.mgk_wait_quantile_s(0.0, 1, 1, 4, 0.95) == 0


def test_erlang_c_of_published_tables() -> None:
    assert queueing.erlang_c(0.8, 1) == pytest.approx(0.8)
    assert queueing.erlang_c(0.8, 10) == pytest.approx(0.4092, abs=1e-4)
    assert queueing.erlang_c(0.9, 100) == pytest.approx(0.2169, abs=3e-3)


@given(st.floats(0.01, 0.98), st.integers(1, 400), st.floats(0, 3))
def test_mgk_is_exact_for_one_server_and_for_exponential_service(
    rho: float, servers: int, cs: float
) -> None:
    assert queueing.mgk_wait_s(rho, 1, cs, 1) == pytest.approx(queueing.mg1_wait_s(rho, 1, cs))
    exact = queueing.erlang_c(rho, servers) / (servers * (1 - rho))
    assert queueing.mgk_wait_s(rho, 1, 1, servers) == pytest.approx(exact)


@given(st.floats(1e-3, 10), st.floats(0.1, 3), st.integers(1, 256))
@settings(max_examples=50, deadline=None)
def test_the_utilisation_target_is_the_highest_that_holds(
    limit: float, cs: float, servers: int
) -> None:
    rho = queueing.utilisation_target(limit, 1.0, cs, servers)
    assert queueing.mgk_wait_quantile_s(rho, 1.0, cs, servers, 0.95) <= limit + 1e-9
    if rho < 0.999:
        assert queueing.mgk_wait_quantile_s(rho + 1e-4, 1.0, cs, servers, 0.95) > limit


def test_more_variance_asks_for_a_lower_target() -> None:
    targets = [queueing.utilisation_target(0.5, 1.0, cs, 8) for cs in (0.0, 1.0, 2.0)]
    assert targets == sorted(targets, reverse=True)
    assert targets[0] - targets[2] > 0.05


GAPS = st.lists(st.floats(0, 1e5), min_size=1, max_size=60)


@given(GAPS, st.floats(0, 1e4))
def test_the_best_time_out_is_no_worse_than_any_and_the_offline_optimum_is_below(
    gaps: list[float], start_s: float
) -> None:
    found = coldstart.Gaps(gaps)
    best = found.best(start_s)
    for timeout in (0.0, start_s, 60.0, 600.0, max(gaps), max(gaps) / 2):
        assert best.cost_s <= found.cost(timeout, start_s).cost_s * (1 + 1e-9) + 1e-6
    assert found.offline_optimum_s(start_s) <= best.cost_s * (1 + 1e-9) + 1e-6


@given(GAPS, st.floats(0.001, 1e4))
def test_waiting_for_the_cost_of_a_start_is_at_most_twice_the_optimum(
    gaps: list[float], start_s: float
) -> None:
    found = coldstart.Gaps(gaps)
    cost = found.cost(start_s, start_s).cost_s
    assert cost <= 2 * found.offline_optimum_s(start_s) * (1 + 1e-9) + 1e-6


@given(GAPS, st.floats(0, 1e5), st.floats(0, 1e5))
def test_a_longer_time_out_never_makes_more_cold_starts(
    gaps: list[float], a: float, b: float
) -> None:
    found = coldstart.Gaps(gaps)
    short, long = sorted((a, b))
    assert found.cost(short, 1).cold_starts >= found.cost(long, 1).cold_starts
    low, high = found.confidence(short)
    assert 0 <= low <= found.cost(short, 1).cold_probability <= high <= 1


@given(st.floats(0.1, 100), st.floats(0.1, 50), st.floats(0, 500), st.integers(1, 8))
def test_the_replicas_to_recover_do_recover_in_time_and_one_less_does_not(
    rate: float, each: float, start_s: float, ready: int
) -> None:
    within = 2 * start_s + 1
    added = spike.replicas_to_recover(rate, each, start_s, within, ready)
    if rate <= ready * each or rate >= (ready + added) * each:
        return
    found = spike.backlog(rate, each, start_s, ready, added)
    assert found.recovered_s <= within * (1 + 1e-6)
    if added > 1 and rate < (ready + added - 1) * each:
        assert spike.backlog(rate, each, start_s, ready, added - 1).recovered_s > within * 0.999


@settings(max_examples=30, deadline=None)
@given(
    st.floats(1, 20),
    st.floats(0.6, 0.95),
    st.integers(1, 4),
    st.floats(20, 120),
)
def test_patient_clients_follow_the_triangle(
    rate: float, share: float, ready: int, start_s: float
) -> None:
    each = rate * share / ready
    event = retries.Spike(rate, each, start_s, ready, ready)
    theory = spike.backlog(rate, each, start_s, ready, ready)
    played = retries.outcome(event, retries.Clients(None), 6 * theory.recovered_s + 10)
    assert played.recovered_s is not None
    whole_requests = 3 * ready + 2  # the fluid has none: a few of them may be in service or due
    assert played.peak == pytest.approx(theory.peak, abs=whole_requests)
    drain = 2 * ready * each - rate
    assert played.recovered_s == pytest.approx(theory.recovered_s, abs=whole_requests / drain)


def test_a_short_spike_below_the_time_out_never_triggers_the_metastable_state() -> None:
    event, clients = retries.Spike(6, 4, 30), retries.Clients(60, 3)
    assert retries.is_metastable(event, clients)
    assert retries.outcome(event, clients).recovered_s == pytest.approx(60, rel=0.05)


def test_without_retries_even_served_dead_work_drains() -> None:
    event, clients = retries.Spike(6, 4, 180), retries.Clients(10, 0)
    assert not retries.is_metastable(event, clients)
    assert retries.outcome(event, clients).recovered_s is not None


@given(st.floats(1e9, 1e12), st.floats(1e6, 1e9), st.floats(1e11, 1e14), st.integers(1, 5000))
def test_the_largest_batch_is_the_largest_that_keeps_the_speed(
    weights: float, each: float, bandwidth: float, batch: int
) -> None:
    speed = decode.stream_tokens_per_s(batch, weights, each, bandwidth)
    found = decode.largest_batch(speed, weights, each, bandwidth)
    assert abs(found - batch) <= 1
    assert decode.largest_batch(bandwidth / weights * 1.01, weights, each, bandwidth) == 0


@given(st.integers(1, 10_000), st.floats(0, 0.9))
def test_the_percentile_needed_is_the_inverse_of_meeting_a_slow_call(
    calls: int, share: float
) -> None:
    needed = tail.percentile_needed(calls, share)
    assert tail.meets_slow(calls, needed) == pytest.approx(share, abs=1e-9)


def test_the_tail_at_its_ends() -> None:
    assert tail.meets_slow(0, 0.5) == 0
    assert tail.meets_slow(0, 1.0) == 0
    assert tail.meets_slow(5, 1.0) == 1
    assert tail.meets_slow(5, 0.0) == 0
    assert tail.sequential_mean_s(20, 0.5) == 10
