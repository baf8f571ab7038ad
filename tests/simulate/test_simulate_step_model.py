"""The batch step fitted to the plan's speed model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preroll.errors import InputError
from preroll.planning.scenario import Inputs, scenario
from preroll.planning.step_model import BATCHES, CONTEXTS, fit, step_model

GRID = [(1.0, b, b * c) for b in BATCHES for c in CONTEXTS]
terms = st.floats(1e-4, 1e-1), st.floats(1e-7, 1e-3), st.floats(1e-10, 1e-6)


@settings(deadline=None)
@given(*terms)
def test_a_step_that_is_linear_is_found_again(a: float, b: float, c: float) -> None:
    found = fit([(x, a * x[0] + b * x[1] + c * x[2]) for x in GRID])
    for x in GRID:
        value = sum(f * v for f, v in zip(found, x, strict=True))
        assert value == pytest.approx(a * x[0] + b * x[1] + c * x[2], rel=1e-4)


def test_no_coefficient_is_negative() -> None:
    assert min(fit([(x, 1.0 / x[1]) for x in GRID])) >= 0.0


def test_a_real_model_is_fitted_within_a_tenth() -> None:
    found = step_model("Llama-3.1-70B", "8xH100")
    assert found.worst < 0.1
    assert 0.005 < found.step_s < 0.03 and found.kv_tokens > 500_000
    service = scenario(Inputs(batch="model=Llama-3.1-70B,on=8xH100,seq=1ms")).service
    assert service["step_s"] == pytest.approx(found.step_s) and service["seq_s"] == 0.001


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        ("model=Llama-3.1-70B", "model= and on= go together"),
        ("model=Nothing-1B,on=1xH100", "Nothing-1B"),
        ("model=Llama-3.1-8B,on=1xH999", "H999"),
    ],
)
def test_an_unknown_model_or_device_is_named(batch: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        scenario(Inputs(batch=batch))
