"""The published numbers that the planner must reproduce, each within its tolerance."""

from __future__ import annotations

import math

import pytest

from preroll.core import Preparedness, Wait
from preroll.planning import models
from preroll.planning.catalogue import devices
from preroll.planning.deployment import Deployment
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

LLAMA = models.find("Llama-3.1-70B")
NODE = Deployment(LLAMA, devices()["h100"], 8)
KV_PER_TOKEN = 327_680
SOURCE_WEIGHTS = 140e9
BANDWIDTH = 8 * 3.35e12


def test_weights_of_the_reference_model_are_141_gb() -> None:
    assert LLAMA.parameters.total == pytest.approx(70.6e9, rel=0.002)
    assert LLAMA.weight_bytes == pytest.approx(141.2e9, rel=0.002)


@pytest.mark.parametrize(("bandwidth", "seconds"), [(1e9, 141.2), (7e9, 20.2)])
def test_transfer_floor_of_the_reference_model(bandwidth: float, seconds: float) -> None:
    assert transfer.floor_s(141.2e9, bandwidth) == pytest.approx(seconds, rel=0.005)


def test_one_shard_of_eight_crosses_pcie_in_a_quarter_second() -> None:
    assert SOURCE_WEIGHTS / 8 == 17.5e9
    assert transfer.shard_floor_s(SOURCE_WEIGHTS, 8, 64e9) == pytest.approx(0.273, rel=0.01)


@pytest.mark.parametrize(("every_s", "share"), [(300, 0.135), (1200, 0.607)])
def test_share_of_cold_requests_at_ten_minutes(every_s: float, share: float) -> None:
    assert coldstart.poisson_probability(1 / every_s, 600) == pytest.approx(share, abs=5e-4)


def test_cold_starts_per_hour_and_the_worst_rate() -> None:
    assert coldstart.poisson_starts_per_s(6 / 3600, 600) * 3600 == pytest.approx(2.2, abs=0.01)
    rate, most = coldstart.worst_rate(600)
    assert rate * 3600 == pytest.approx(6)
    assert most == pytest.approx(1 / (math.e * 600))
    assert all(coldstart.poisson_starts_per_s(rate * f, 600) < most for f in (0.9, 1.1))


@pytest.mark.parametrize(("start_s", "peak", "recovered"), [(30, 60, 60), (180, 360, 360)])
def test_spike_of_patient_clients(start_s: float, peak: float, recovered: float) -> None:
    found = spike.backlog(6, 4, start_s)
    assert (found.peak, found.recovered_s) == (peak, recovered)


@pytest.mark.parametrize(("rho", "stretch"), [(0.5, 2), (0.8, 5), (0.9, 10), (0.95, 20)])
def test_time_in_system_of_mm1(rho: float, stretch: float) -> None:
    assert queueing.mm1_stretch(rho) == pytest.approx(stretch)


def test_variance_two_waits_two_and_a_half_times_exponential_and_five_times_fixed() -> None:
    assert queueing.variance_factor(2) == 2.5
    assert queueing.variance_factor(2) / queueing.variance_factor(0) == 5


def test_kv_bytes_per_token_of_the_reference_model() -> None:
    assert kv.token_bytes(LLAMA.layout) == KV_PER_TOKEN


def test_kv_pool_tokens_and_sessions_of_the_reference_node() -> None:
    pool = kv.pool_bytes(640e9, 141e9, 35e9, 0.9)
    assert pool == pytest.approx(400e9, rel=0.001)
    assert pool / KV_PER_TOKEN == pytest.approx(1.22e6, rel=0.001)
    assert kv.capacity_sessions(LLAMA.layout, pool, 2048) == 596
    assert kv.capacity_sessions(LLAMA.layout, pool, 131_072) == 9
    assert NODE.pool() == pytest.approx(pool, rel=0.001)


@pytest.mark.parametrize(("batch", "speed"), [(1, 190), (64, 119), (256, 55)])
def test_speed_of_a_stream_at_4k_context(batch: int, speed: float) -> None:
    found = decode.stream_tokens_per_s(batch, SOURCE_WEIGHTS, 4096 * KV_PER_TOKEN, BANDWIDTH)
    assert found == pytest.approx(speed, rel=0.015)
    if batch == 64:
        assert 64 * found == pytest.approx(7600, rel=0.01)


def test_compute_and_memory_time_of_a_step_of_256() -> None:
    flop = 256 * 2 * 70e9
    assert flop == pytest.approx(36e12, rel=0.01)
    assert decode.compute_step_s(256, 70e9, 8 * 989.4e12) == pytest.approx(4.5e-3, rel=0.01)
    held = 256 * 4096 * KV_PER_TOKEN
    assert decode.memory_step_s(SOURCE_WEIGHTS, held, BANDWIDTH) == pytest.approx(18e-3, rel=0.01)


@pytest.mark.parametrize(("calls", "share"), [(20, 0.18), (100, 0.63)])
def test_tail_over_calls(calls: int, share: float) -> None:
    assert tail.meets_slow(calls) == pytest.approx(share, abs=0.005)


def test_worst_start_is_seven_minutes_and_nineteen_times_the_best() -> None:
    worst = start.bill(Preparedness.NEW_NODE, 141.2e9)
    best = start.bill(Preparedness.RESIDENT, 141.2e9)
    assert [round(worst[w]) for w in Wait] == [120, 70, 5, 141, 15, 60, 8]
    assert [round(best[w]) for w in Wait] == [0, 2, 5, 0, 4, 6, 5]
    assert start.total_s(worst) == pytest.approx(7 * 60, rel=0.01)
    assert start.total_s(worst) / start.total_s(best) == pytest.approx(19, rel=0.01)


def test_8b_to_405b_multiplies_the_floor_by_fifty_and_by_25_only_at_half_the_bytes() -> None:
    assert transfer.floor_ratio(8.0e9, 2, 405e9, 2) == pytest.approx(50.6, rel=0.005)
    assert transfer.floor_ratio(8.0e9, 2, 405e9, 1) == pytest.approx(25.3, rel=0.005)


VIDEO_START = {
    "imports": 8.24,
    "models": 2.78,
    "big engine": 12.36,
    "remaining weights": 1.18,
    "face analysis": 3.48,
    "engines": 2.76,
    "third-party SDK": 9.78,
    "template": 1.53,
    "warm-ups": 3.27,
    "reference frame": 0.67,
}


def test_video_worker_start_sums_to_its_total_and_removing_a_phase_saves_only_its_own() -> None:
    assert sum(VIDEO_START.values()) == pytest.approx(46.05, abs=0.005)
    shared = 12.36 - 2.5
    assert start.saving_s(VIDEO_START, "big engine", shared) == pytest.approx(2.5)


def test_six_gb_over_pinned_unpinned_and_the_loader_that_was_76_times_below() -> None:
    assert transfer.floor_s(6e9, 52.76e9) == pytest.approx(0.114, rel=0.01)
    assert transfer.floor_s(6e9, 11.22e9) == pytest.approx(0.535, rel=0.01)
    assert transfer.floor_s(6e9, 0.69e9) / transfer.floor_s(6e9, 52.76e9) == pytest.approx(
        76, abs=0.6
    )


def test_snapshot_restore_is_mostly_a_transfer() -> None:
    assert transfer.floor_s(23e9, 0.2e9) == pytest.approx(115)
    assert 115 / 129 > 0.85


SPIKE = retries.Spike(rate=6, service_rate=4, start_s=180)


def test_retries_patient_clients_recover_at_359_s() -> None:
    found = retries.outcome(SPIKE, retries.Clients(None))
    assert found.peak == pytest.approx(360, rel=0.01)
    assert found.recovered_s == pytest.approx(359, rel=0.01)


def test_retries_with_dead_work_dropped_recover_at_230_s() -> None:
    found = retries.outcome(SPIKE, retries.Clients(10, 3, drop_dead=True))
    assert found.recovered_s == pytest.approx(230, rel=0.02)
    assert found.wasted == 0


@pytest.mark.parametrize("timeout_s", [10, 30])
def test_retries_with_dead_work_served_never_recover_and_waste_97_percent(
    timeout_s: float,
) -> None:
    clients = retries.Clients(timeout_s, 3)
    found = retries.outcome(SPIKE, clients)
    assert found.recovered_s is None
    assert 0.97 <= found.wasted <= 0.995
    assert retries.is_metastable(SPIKE, clients)


def test_padded_speech_windows_cost_less_than_linear() -> None:
    assert speech.exponent(30, 0.256, 15, 0.097) == pytest.approx(1.4, abs=0.01)
    assert speech.exponent(15, 0.097, 10, 0.060) == pytest.approx(1.18, abs=0.01)
    assert speech.windows(12.0, 30.0) == 1
    assert speech.windows(61.0, 30.0) == 3
    assert speech.encoder_s(12.0, 10.0, 0.006) == pytest.approx(0.12)
