"""The cliff command on real sockets: a mock whose capacity is planted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from preroll import measurements
from preroll.cli.cliff import main
from preroll.cli.cliff_target import MEASURING
from preroll.cli.load_inputs import get
from preroll.config import load_app
from preroll.errors import InputError, UnavailableError
from preroll.instruments.cliff.live import LiveProbe
from preroll.instruments.load.client import Mock, program
from preroll.instruments.load.records import read
from preroll.instruments.load.requests import Ask, parse_url, template
from preroll.instruments.load.result import Targets
from preroll.instruments.replica import own_replica


def app_of_mock(folder: Path, **options: object) -> Path:
    """An app file whose only stage is a mock with these options."""
    words = [w for k, v in options.items() for w in (f"--{k.replace('_', '-')}", str(v))]
    command = json.dumps([program(), "mock", "--listen", "tcp:127.0.0.1:{port}", *words])
    app = folder / "app.toml"
    app.write_text(
        f'[stage.chat]\nengine = "command"\nhealth = "/v1/models"\ncommand = {command}\n'
    )
    return app


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_planted_cliff_of_a_stage_is_found_on_a_replica_of_its_own_and_kept_beside_the_app(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Below 12 in flight nothing is slow, from 16 on nearly everything is.
    app = app_of_mock(tmp_path, slow_curve="12:0,14:0.5,16:0.95", slow_ms=150, ttft_ms=1, tokens=2)
    arguments = [str(app), "--slo-ttft", "120ms", "--max-tokens", "2"]
    arguments += ["--max-requests", "4000", "--json", "--out", str(tmp_path / "out")]
    status = main(arguments)
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    collapse = result["thresholds"][2]
    assert collapse["name"] == "collapse" and 12 <= collapse["level"] <= 20
    assert json.loads(capsys.readouterr().out)["requests"] == result["requests"]
    assert len(read(tmp_path / "out" / "records.ndjson").measured) >= result["requests"]
    drawn = (tmp_path / "out" / "plot.svg").read_text()
    assert drawn.strip() in (tmp_path / "out" / "report.html").read_text()
    assert len(result["requests_per_s"]) >= len(result["up"])
    assert "a replica of its own" in result["notes"][0]
    written = measurements.read(tmp_path / "app.measured.toml")
    # Unresolved on a slow machine is an answer (3) and writes nothing; a limit is below the cliff.
    assert [m.kind for m in written] == (["cliff"] if status == 0 else [])
    assert all(1 <= m.value < 16 for m in written)
    assert status != 0 or result["open_runs"]
    assert not any((home / "preroll" / MEASURING).iterdir())


def test_a_stage_that_promises_something_is_held_to_it(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = app_of_mock(tmp_path, ttft_ms=1, tokens=2)
    arguments = [str(app), "--max-tokens", "2", "--max-requests", "140"]
    with pytest.raises(InputError, match="ttft_p95"):
        main(arguments)
    app.write_text(app.read_text() + 'slo = { ttft_p95 = "120ms", pace = "40ms" }\n')
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 3
    assert "ttft ≤ 120 ms, gap ≤ 40 ms" in capsys.readouterr().out


def test_what_a_killed_measurement_left_running_is_ended_by_the_next(
    tmp_path: Path, home: Path
) -> None:
    app = app_of_mock(tmp_path)
    stage = load_app(app).stages["chat"]
    code = (
        "import sys, time; from pathlib import Path; from preroll.config import load_app\n"
        "from preroll.instruments.replica import own_replica\n"
        "app = load_app(Path(sys.argv[1]))\n"
        "with own_replica(app.stages['chat'], app.directory, Path(sys.argv[2])) as own:\n"
        "    print(own.address, flush=True); time.sleep(600)\n"
    )
    words = [sys.executable, "-c", code, str(app), str(home)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = parse_url("http://" + process.stdout.readline().strip().removeprefix("tcp:"))
        assert get(left, "/v1/models")[0] == 200
        process.kill()
    assert get(left, "/v1/models")[0] == 200, "a SIGKILL of the instrument reaches it alone"
    with own_replica(stage, tmp_path, home) as own:
        assert own.start.total_s > 0
        with pytest.raises(UnavailableError):
            get(left, "/v1/models")
    assert not any(home.iterdir())


def test_a_stage_that_is_not_in_the_app_or_does_not_start_is_an_error(
    tmp_path: Path, home: Path
) -> None:
    app = app_of_mock(tmp_path, no_such_flag=1)
    with pytest.raises(InputError, match="allowed: chat"):
        main([str(app), "other", "--slo-ttft", "1s"])
    with pytest.raises(UnavailableError, match="no_such_flag"):
        main([str(app), "--slo-ttft", "1s", "--out", str(tmp_path / "out")])
    state = ["--served", "--state", str(tmp_path / "none")]
    with pytest.raises(InputError, match="no ready replica"):
        main([str(app), "--slo-ttft", "1s", "--out", str(tmp_path / "out"), *state])


def test_a_target_elsewhere_must_be_allowed_to_break(tmp_path: Path) -> None:
    arguments = ["http://192.0.2.1:1", "--slo-ttft", "1s", "--model", "m"]
    arguments += ["--out", str(tmp_path)]
    with pytest.raises(InputError, match="--allow-break"):
        main(arguments)
    with pytest.raises(InputError, match="--max-failures"):
        main([*arguments, "--allow-break"])


def test_the_queue_is_asked_for_some_times_a_look_and_only_on_the_way_up(tmp_path: Path) -> None:
    with Mock(ttft_ms=1, gap_ms=0.1, tokens=2) as mock:
        server = parse_url(mock.url)
        requests = [template(server, Ask(model="mock", max_tokens=2), "hello")]
        asked: list[int] = []
        with LiveProbe(server, requests, Targets(ttft_ms=1e4), tmp_path / "r.ndjson") as probe:
            probe.on_level = asked.append
            assert len(probe.measure(3, 50, drain=True)) == 50
            up = list(asked)
            assert len(probe.measure(2, 50, drain=False)) == 50
        assert set(up) == {3} and 3 <= len(up) <= 6
        assert asked == up
        assert set(probe.rates()) == {2, 3} and all(rate > 0 for rate in probe.rates().values())


def test_a_promise_and_a_known_stage_are_needed(tmp_path: Path) -> None:
    with Mock() as mock:
        with pytest.raises(InputError, match="promise"):
            main([mock.url, "--out", str(tmp_path)])
        with pytest.raises(InputError, match="no app file"):
            main([mock.url, "chat"])
