"""The cliff command on real sockets: a mock whose capacity is planted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preroll import measurements
from preroll.cli.cliff import main
from preroll.errors import InputError
from preroll.instruments.load.client import Mock
from preroll.instruments.load.records import read


def served(folder: Path, mock: Mock) -> list[str]:
    """An app file and the tables that `preroll serve` would have written for it."""
    app, state = folder / "app.toml", folder / "state"
    command = json.dumps(["preroll-load", "mock", "--listen", "tcp:127.0.0.1:{port}"])
    app.write_text(f'[stage.chat]\nengine = "command"\ncommand = {command}\n')
    replicas = [
        {"id": "chat-0", "address": "tcp:127.0.0.1:9", "state": "draining"},
        {"id": "chat-1", "address": mock.address, "state": "ready"},
    ]
    state.mkdir()
    tables = {"version": 1, "stages": {"chat": {"replicas": replicas}}}
    (state / "tables.json").write_text(json.dumps(tables))
    return [str(app), "chat", "--state", str(state)]


def test_a_planted_cliff_is_found_over_real_sockets_and_kept_beside_the_app(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Below 12 in flight nothing is slow, from 16 on nearly everything is.
    with Mock(slow_curve="12:0,14:0.5,16:0.95", slow_ms=150, ttft_ms=1, tokens=2) as mock:
        arguments = [*served(tmp_path, mock), "--slo-ttft", "120ms", "--max-tokens", "2"]
        arguments += ["--max-requests", "4000", "--json", "--out", str(tmp_path / "out")]
        status = main(arguments)
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    collapse = result["thresholds"][2]
    assert collapse["name"] == "collapse" and 12 <= collapse["level"] <= 20
    assert json.loads(capsys.readouterr().out)["requests"] == result["requests"]
    assert len(read(tmp_path / "out" / "records.ndjson").measured) >= result["requests"]
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()
    written = measurements.read(tmp_path / "app.measured.toml")
    # Unresolved on a slow machine is an answer (3) and writes nothing; a limit is below the cliff.
    assert [m.kind for m in written] == (["cliff"] if status == 0 else [])
    assert all(1 <= m.value < 16 for m in written)


def test_a_stage_without_a_ready_replica_is_an_error(tmp_path: Path) -> None:
    with Mock() as mock:
        arguments = served(tmp_path, mock)
    (tmp_path / "state" / "tables.json").unlink()
    with pytest.raises(InputError, match="no ready replica"):
        main([*arguments, "--slo-ttft", "1s"])
    with pytest.raises(InputError, match="allowed: chat"):
        main([arguments[0], "other", "--slo-ttft", "1s"])


def test_a_target_elsewhere_must_be_allowed_to_break(tmp_path: Path) -> None:
    arguments = ["http://192.0.2.1:1", "--slo-ttft", "1s", "--model", "m"]
    arguments += ["--out", str(tmp_path)]
    with pytest.raises(InputError, match="--allow-break"):
        main(arguments)
    with pytest.raises(InputError, match="--max-failures"):
        main([*arguments, "--allow-break"])


def test_a_promise_and_a_known_stage_are_needed(tmp_path: Path) -> None:
    with Mock() as mock:
        with pytest.raises(InputError, match="promise"):
            main([mock.url, "--out", str(tmp_path)])
        with pytest.raises(InputError, match="no app file"):
            main([mock.url, "chat"])
