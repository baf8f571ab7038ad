"""`preroll starts`, as a user sees it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from preroll import events, measurements
from preroll.cli import starts
from preroll.core import Gap, Phase, Start, Wait
from preroll.errors import InputError, UnavailableError
from preroll.events import EventLog
from preroll.instruments.starts_raw import RawFile

PROGRAM = ["--", sys.executable, "-c", "print('x')"]


def put(log: EventLog, stage: str, seconds: int) -> None:
    ns = seconds * 10**9
    phases = (Phase(Wait.INIT, "spawn", 0, ns // 2), Phase(Wait.LOAD, "load words", ns // 2, ns))
    start = Start(f"{stage}-1", stage, 0, ns, phases, gap=Gap(0, ns // 2, "Loading weights"))
    log.append(
        "start", stage=stage, replica=start.replica, data=events.start_data(start), durable=True
    ).result(60)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    (folder / "holders").mkdir(parents=True)
    log = EventLog(folder / "events.sqlite")
    for seconds in (2, 4, 6):
        put(log, "chat", seconds)
    put(log, "tts", 1)
    log.close()
    return folder


def test_the_log_is_shown_as_bars_and_a_distribution(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert starts.main(["--state", str(state), "--last", "1", "--phases"]) == 0
    output = capsys.readouterr().out
    assert "chat chat-1: 6.000 s from spawn to ready" in output
    assert "chat-1: 4.000 s" not in output
    assert "longest silence: 3.0 s after 'Loading weights' with no output" in output
    assert "load words" in output
    assert "median  4.000 s" in output
    assert "stage tts" in output


def test_one_stage_and_json(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert starts.main(["--state", str(state), "--stage", "tts", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["stage"] == "tts"


def test_a_log_without_starts_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "holders").mkdir()
    assert starts.main(["--state", str(tmp_path)]) == 0
    assert "no starts in" in capsys.readouterr().err


def test_launches_are_measured_and_an_experiment_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw.jsonl"
    assert starts.main(["--run", "2", "--out", str(raw), *PROGRAM]) == 0
    output = capsys.readouterr().out
    assert "starts  2" in output
    assert "spread" in output
    assert "p90     refused: it needs at least 29 starts" in output
    assert starts.main(["--resume", str(raw), "--run", "3"]) == 0
    assert len(RawFile.read(raw)[1]) == 3
    with pytest.raises(InputError, match="was measured with argv"):
        starts.main(["--resume", str(raw), "--run", "4", "--", "other"])


def test_a_failing_program_shows_its_cause_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--run", "2", "--out", str(tmp_path / "raw")]
    with pytest.raises(UnavailableError) as raised:
        starts.main([*arguments, "--", sys.executable, "-c", "import nosuchmodule"])
    assert str(raised.value).endswith("ModuleNotFoundError: No module named 'nosuchmodule'")
    assert "failed  2" in capsys.readouterr().out


def test_a_stage_is_measured_into_the_file_beside_its_app(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    app = tmp_path / "app.toml"
    program = json.dumps([sys.executable, "-m", "http.server", "-b", "127.0.0.1", "{port}"])
    app.write_text(f'[stage.files]\nengine = "command"\ncommand = {program}\n')
    arguments = ["--run", "2", "--app", str(app), "--out", str(tmp_path / "raw")]
    assert starts.main(arguments) == 0
    (entry,) = measurements.read(tmp_path / "app.measured.toml")
    assert (entry.stage, entry.kind, len(entry.samples)) == ("files", "start", 2)
    assert "written to" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--run", "2"], "say what to launch"),
        (["--run", "0", *PROGRAM], "--run 0: allowed"),
        (["--run", "1", "--url", "http://h", *PROGRAM], "say what to launch"),
        (["--run", "1", "--url", "http://127.0.0.1:1"], "--idle 10m"),
        (["--run", "1", "--engine", "vlm", *PROGRAM], "--engine vlm: allowed"),
        (["--run", "1", "--ready", "(", *PROGRAM], "regular expression"),
        (["--run", "1", "--timeout", "3", *PROGRAM], "not a duration"),
        (PROGRAM, "say how many launches with --run N"),
        (["--ready", "80"], "say how many launches with --run N"),
    ],
)
def test_options_that_do_not_go_together_are_named(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        starts.main(arguments)
    assert said in str(raised.value)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_experiment_that_is_interrupted_or_killed_leaves_a_valid_file(
    number: signal.Signals, tmp_path: Path
) -> None:
    raw = tmp_path / "raw"
    mark = f"mark-{uuid.uuid4()}"
    code = "print('up', flush=True); import time; time.sleep(600)"
    words = [sys.executable, "-c", code, mark]
    options = ["--run", "100000", "--out", str(raw), "--ready", "^up$"]
    arguments = ["starts", *options, "--", *words]
    code = "import sys; from preroll.cli.main import main; sys.argv[0] = 'preroll'; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    deadline = time.monotonic() + 100
    while not raw.exists() or raw.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    output, _ = process.communicate(timeout=100)
    done = len(RawFile.read(raw)[1])
    assert done >= 2
    if number is signal.SIGINT:
        assert process.returncode == 130
        assert f"go on with --resume {raw}" in output.decode()
        assert "median" in output.decode()
    assert starts.main(["--resume", str(raw), "--run", str(done + 1)]) == 0
    assert len(RawFile.read(raw)[1]) == done + 1
    assert not list(tmp_path.glob("*.state"))
    deadline = time.monotonic() + 60
    while any(mark in " ".join(p.info["cmdline"] or ()) for p in processes()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def processes() -> list[psutil.Process]:
    return list(psutil.process_iter(["cmdline"]))
