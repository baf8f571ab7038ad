"""A profile's prediction beside the outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from preroll.errors import InputError
from preroll.instruments import startup
from preroll.instruments.ablation import predict
from preroll.instruments.ablation.predict import Prediction
from preroll.instruments.ablation.verdict import Effect, Outcome
from preroll.instruments.startup import profile_file
from preroll.instruments.startup.base import ImportCost, Profile


def total(saving_s: float, low_s: float | None, high_s: float | None) -> Effect:
    return Effect("total", 6, 10.0, 9.0, saving_s, low_s, high_s, 0.03, Outcome.SAVES)


@pytest.mark.parametrize(
    ("exclusive_s", "effect", "is_right"),
    [
        (0.70, total(1.21, 0.67, 1.75), True),  # inside the interval
        (0.22, total(1.21, 0.67, 1.75), False),
        (1.00, total(1.21, 1.10, 1.30), True),  # within a quarter
        (0.80, total(1.21, 1.10, 1.30), False),
        (1.00, total(1.21, None, None), True),
        (0.10, total(0.0, -0.2, 0.2), True),
        (0.30, total(0.0, -0.2, 0.2), False),
    ],
)
def test_a_prediction_is_right_inside_the_interval_or_within_a_quarter(
    exclusive_s: float, effect: Effect, is_right: bool
) -> None:
    assert Prediction("m", exclusive_s, 3.73).is_right(effect) is is_right


def test_the_error_is_relative_to_the_measured_saving() -> None:
    assert Prediction("m", 0.5, 1.0).error(total(1.0, 0.5, 1.5)) == -0.5
    assert Prediction("m", 0.5, 1.0).error(total(0.0, 0.0, 0.0)) is None


def test_the_import_is_looked_up_and_what_there_is_is_said(tmp_path: Path) -> None:
    cost = ImportCost("torch", "", 3, 3.0, 1.5, {"other": 1.5}, 2.9, 0, 0, 0.1)
    profile = Profile(
        ("x",), startup.Outcome.READY, "", "off", "asked for", 5.0, "2026-11-29", {}, (),
        imports={"torch": cost},
    )  # fmt: skip
    path = tmp_path / "profile.json"
    profile_file.write(profile, path)
    assert predict.read(path, "torch") == Prediction("torch", 1.5, 3.0)
    with pytest.raises(InputError, match="no package 'numpy'; it has: torch"):
        predict.read(path, "numpy")
    path.write_text("[]")
    with pytest.raises(InputError, match="not a profile"):
        predict.read(path, "torch")
