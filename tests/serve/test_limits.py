"""`max_concurrency = "measured"`: a cliff that fits is used, and said; what is missing is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from served import Served, engine_stage

from preroll import measurements
from preroll.config import load_app, parse_app
from preroll.core import Measurement
from preroll.fingerprints import DigestCache, cache_path, fingerprint
from preroll.instruments.cliff import report
from preroll.serve.limits import Limits, with_limits

Serve = Callable[[str], Served]
MEASURED = '"measured"'


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    path = tmp_path / "app.toml"
    path.write_text(engine_stage(max_concurrency=MEASURED, slo='{ ttft_p95 = "250ms" }'))
    return path


def cliff(app_file: Path, limit: float, hours_old: float) -> Measurement:
    stage = load_app(app_file).stages["chat"]
    date = datetime.now(UTC) - timedelta(hours=hours_old)
    return Measurement(
        stage="chat",
        kind=report.KIND,
        value=limit,
        unit="requests",
        low=None,
        high=None,
        samples=(0.0, 0.5),
        date=date.isoformat(timespec="seconds"),
        fingerprint=fingerprint(stage, app_file.parent, DigestCache(cache_path())),
    )


def limits(app_file: Path, *entries: Measurement) -> Limits:
    measurements.write(measurements.measured_path(app_file), entries)
    return with_limits(load_app(app_file))


def test_the_kind_is_that_of_the_instrument() -> None:
    assert report.KIND == measurements.CLIFF


def test_the_newest_cliff_that_fits_is_the_limit_and_its_age_is_told(app_file: Path) -> None:
    other = replace(cliff(app_file, 9, 0), stage="another")
    found = limits(app_file, cliff(app_file, 5, 72), other)
    assert found.app.stages["chat"].max_concurrency == 5
    assert found.warnings == ()
    assert found.sources == {"chat": "cliff 5 requests, 2 samples, 3 d old"}


def test_a_cliff_above_the_engines_own_limit_is_cut_to_it(tmp_path: Path) -> None:
    path = tmp_path / "app.toml"
    path.write_text(
        '[stage.chat]\nengine = "sglang"\nmodel = "org/model"\nmax_concurrency = "measured"\n'
        'args = ["--max-running-requests=8"]\n'
    )
    assert limits(path, cliff(path, 100, 1)).app.stages["chat"].max_concurrency == 8


def test_a_stale_cliff_is_not_used_and_says_what_differs_and_what_to_do(app_file: Path) -> None:
    entry = cliff(app_file, 5, 1)
    stale = replace(entry, fingerprint=replace(entry.fingerprint, engine_version="0.1"))
    found = limits(app_file, stale)
    assert found.app.stages["chat"].max_concurrency is None
    (warning,) = found.warnings
    assert "is stale (1 h old): engine_version was '0.1'" in warning
    assert f"`preroll cliff {app_file} chat --slo-ttft 250ms`" in warning
    assert "the engine's own limit" in found.sources["chat"]


def test_a_limit_that_was_never_measured_names_the_command(app_file: Path) -> None:
    (warning,) = with_limits(load_app(app_file)).warnings
    assert "not measured" in warning and "preroll cliff" in warning


def test_other_limits_say_where_they_are_from() -> None:
    toml = engine_stage(max_concurrency="3") + engine_stage(name="other")
    found = with_limits(parse_app(toml))
    assert found.sources["chat"] == "the app file"
    assert found.sources["other"].startswith("the engine's own limit")


def test_serve_uses_the_measured_limit_and_ps_shows_where_it_is_from(serve: Serve) -> None:
    service = serve(engine_stage(max_concurrency=MEASURED))
    path = measurements.measured_path(service.file)
    measurements.write(path, [cliff(service.file, 3, 1)])
    service.start()
    words = ("ps", "--state", str(service.state.root))
    stage = json.loads(service.command(*words, "--json").stdout)["stages"]["chat"]
    assert (stage["max_concurrency"], stage["slots"]) == (3, 3)
    text = service.command(*words).stdout
    assert "chat: 3 in flight per replica: cliff 3 requests, 2 samples, 1 h old" in text
    assert not any("warning" in line for line in service.output)


def test_serve_goes_on_without_the_measurement_and_says_so_aloud(serve: Serve) -> None:
    service = serve(engine_stage(max_concurrency=MEASURED))
    service.start()
    assert service.chat()[0] == 200
    said = [line for line in service.output if "preroll cliff" in line]
    assert len(said) == 1 and said[0].startswith("warning: ")
    checked = service.command("check", str(service.file))
    assert checked.returncode == 0 and "preroll cliff" in checked.stderr
