"""The cliff command on real sockets: a mock whose capacity is planted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preroll.cli.cliff import main
from preroll.errors import InputError
from preroll.instruments.load.client import Mock
from preroll.instruments.load.records import read


def test_a_planted_cliff_is_found_over_real_sockets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Below 12 in flight nothing is slow, from 24 on nearly everything is.
    mock = Mock(slow_curve="12:0,14:0.5,16:0.95", slow_ms=150, ttft_ms=1, tokens=2)
    with mock:
        arguments = [mock.url, "--slo-ttft", "120ms", "--max-tokens", "2", "--json"]
        arguments += ["--max-requests", "3000", "--out", str(tmp_path)]
        status = main(arguments)
    result = json.loads((tmp_path / "result.json").read_text())
    assert status in (0, 3)
    collapse = result["thresholds"][2]
    assert collapse["name"] == "collapse" and 12 <= collapse["level"] <= 20
    assert json.loads(capsys.readouterr().out)["requests"] == result["requests"]
    assert len(read(tmp_path / "records.ndjson").measured) >= result["requests"]
    assert "<svg" in (tmp_path / "report.html").read_text()


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
