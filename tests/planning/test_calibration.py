"""The speed model: its fit, its shipped numbers, its intervals, and what it may not do."""

from __future__ import annotations

import json
import math
from importlib.resources import files

import pytest

from preroll.planning import models
from preroll.planning.calibration import Measured, Point, measured_points, speed_model
from preroll.planning.catalogue import devices
from preroll.planning.deployment import Deployment, first_token_terms, step_terms

np = pytest.importorskip("numpy")

from preroll.planning import calibration_errors as errors  # noqa: E402
from preroll.planning import calibration_fit as fit  # noqa: E402

SHIPPED = json.loads((files("preroll.planning") / "data" / "speed.json").read_text("utf-8"))
POINTS = measured_points()


def test_the_shipped_errors_meet_the_aim() -> None:
    held = SHIPPED["tpot"]["held_out"]
    assert held["configuration"]["mape"] <= 0.15
    assert all(h["coverage"] >= 0.85 for h in held.values())
    assert held["model"]["mape"] > held["configuration"]["mape"]  # a new model is harder


def test_the_shipped_weights_belong_to_the_shipped_points() -> None:
    assert SHIPPED["points"] == len(POINTS)
    model = speed_model()
    for target in ("tpot", "ttft"):
        assert len(model.fits[target].weights) == len(POINTS)  # type: ignore[index]
    logs = [math.log(model.fits["tpot"].predict_s(m.point) / m.tpot_s) for m in POINTS[::25]]
    assert sum(abs(x) for x in logs) / len(logs) < 0.08  # seen points, so far below held out


def test_every_measured_point_has_positive_finite_terms() -> None:
    for m in POINTS[::10]:
        for target in ("tpot", "ttft"):
            terms = m.point.terms(target)  # type: ignore[arg-type]
            assert all(math.isfinite(v) and v >= 0 for v in terms.values())
            assert sum(terms.values()) > 0


def deployment(model: str = "Llama-3.1-70B", device: str = "h100", count: int = 8) -> Deployment:
    return Deployment(models.find(model, "fp8"), devices()[device], count)


def test_a_measured_deployment_has_a_narrower_interval_than_a_new_model_or_device() -> None:
    speed = speed_model()
    alike = speed.estimate("tpot", Point(deployment(), 32, 1024, 1024))
    model = speed.estimate("tpot", Point(deployment("Gemma-3-4B", count=1), 32, 1024, 1024))
    device = speed.estimate("tpot", Point(deployment(device="mi300x"), 32, 1024, 1024))
    assert (alike.basis, model.basis, device.basis) == ("configuration", "model", "device")
    for estimate in (alike, model, device):
        assert 0 < estimate.low_s < estimate.value_s < estimate.high_s
    assert alike.high_s / alike.value_s < model.high_s / model.value_s


def test_a_model_measured_with_another_engine_only_counts_as_new() -> None:
    shape = models.find("DeepSeek-V3")
    kinds = {
        engine: speed_model().basis(Deployment(shape, devices()["b200"], 8, engine))
        for engine in ("vllm", "sglang", "trtllm")
    }
    assert kinds == {"vllm": "model", "sglang": "configuration", "trtllm": "configuration"}


def test_a_prediction_is_near_a_measurement_of_the_same_deployment() -> None:
    same = [
        m
        for m in POINTS
        if (d := m.point.deployment).shape.name == "Llama-3.1-70B"
        and (d.device.key, d.engine, d.num_devices) == ("h100", "vllm", 4)
        and (m.point.isl, m.point.osl, m.point.concurrency) == (1024, 1024, 64)
    ]
    assert same
    for m in same:
        assert speed_model().estimate("tpot", m.point).value_s == pytest.approx(m.tpot_s, rel=0.2)


def test_more_devices_and_smaller_batches_are_not_slower_by_physics() -> None:
    base = speed_model().fits["tpot"].base_s
    one = base(Point(deployment(count=2), 16, 1000, 1000))[0]
    two = base(Point(deployment(count=8), 16, 1000, 1000))[0]
    many = base(Point(deployment(count=8), 128, 1000, 1000))[0]
    assert two < one
    assert two < many


def test_terms_stop_growing_where_the_kv_pool_is_full() -> None:
    small = Deployment(models.find("Llama-3.1-70B", "fp8"), devices()["h100"], 1)
    full = step_terms(small, 10_000, 8192, 1024)
    fuller = step_terms(small, 20_000, 8192, 1024)
    assert full == fuller
    waits = [first_token_terms(small, c, 8192, 1024)["kv_wait"] for c in (1, 10_000, 20_000)]
    assert waits[0] == 0 < waits[1] < waits[2]


def test_non_negative_least_squares_finds_known_coefficients_and_clips_negative_ones() -> None:
    generator = np.random.default_rng(1)
    matrix = generator.random((200, 5))
    truth = np.array([2.0, 0.0, 0.5, 0.0, 1.0])
    assert np.allclose(fit.non_negative(matrix, matrix @ truth), truth, atol=1e-9)
    found = fit.non_negative(matrix, matrix @ np.array([1.0, -3.0, 1.0, 1.0, 1.0]))
    assert (found >= 0).all()
    assert found[1] == 0


@pytest.mark.parametrize("seed", range(10))
def test_non_negative_least_squares_meets_its_optimality_conditions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix, target = generator.normal(size=(40, 8)), generator.normal(size=40)
    x = fit.non_negative(matrix, target)
    gradient = matrix.T @ (target - matrix @ x)
    assert (x >= 0).all()
    assert (gradient <= 1e-7).all()
    assert np.allclose(gradient[x > 0], 0, atol=1e-7)


def test_physics_recovers_the_coefficients_of_made_up_measurements_despite_outliers() -> None:
    generator = np.random.default_rng(2)
    terms = generator.random((300, 3)) + 0.1
    times = terms @ np.array([1.0, 2.0, 0.0])
    times[:15] *= 20
    assert np.allclose(fit.physics(terms, times), [1, 2, 0], atol=0.05)


def few(count: int) -> list[Measured]:
    return list(POINTS[:: len(POINTS) // count])


def test_a_fold_holds_out_whole_configurations() -> None:
    points = few(200)
    names = {errors.configuration(m) for m in points}
    folds = {n: errors.fold_of(n, 5) for n in names}
    assert set(folds.values()) == set(range(5))
    held = errors.hold_out(points, "tpot", errors.configuration, 3)
    assert held.mape < 0.6
    assert (held.predicted > 0).all()


def test_a_held_out_error_is_larger_than_the_error_on_seen_points() -> None:
    points = few(200)
    rows = fit.samples(points, "tpot")
    seen = fit.train(rows, "tpot").predict(rows)
    times = np.array([row.time_s for row in rows])
    held = errors.hold_out(points, "tpot", errors.configuration, 3)
    assert float(np.mean(abs(seen - times) / times)) < held.mape


def test_the_conformal_interval_covers_what_it_promises() -> None:
    generator = np.random.default_rng(3)
    logs = generator.normal(0, 0.2, 4000)
    low, high = errors.spread(logs)
    fresh = np.exp(generator.normal(0, 0.2, 4000))
    assert np.mean((fresh >= low) & (fresh <= high)) == pytest.approx(0.9, abs=0.02)
