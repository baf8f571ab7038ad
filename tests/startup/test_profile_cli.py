"""`preroll profile` from the command line to its files and exit statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from startup_help import PYTHON

from preroll.cli.profile import main
from preroll.errors import InputError
from preroll.instruments.startup import profile_file


def test_a_run_writes_every_format_and_prints_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {kind: tmp_path / f"a.{kind}" for kind in ("json", "html", "pftrace", "speedscope")}
    status = main(
        [
            *("--out", str(files["json"]), "--html", str(files["html"])),
            *("--perfetto", str(files["pftrace"]), "--speedscope", str(files["speedscope"])),
            *("--ready", "READY", "--", PYTHON, "-c"),
            "import json, time; print('loading ...', flush=True); time.sleep(0.3);"
            "print('READY', flush=True); time.sleep(60)",
        ]
    )
    assert status == 0
    profile = profile_file.read(files["json"])
    assert profile.outcome == "ready"
    assert "json" in profile.imports
    printed = capsys.readouterr().out
    assert "says 'loading'" in printed and "asleep" in printed
    assert "preroll ablate" not in printed or "--ready READY" in printed
    assert files["html"].read_text().startswith("<!doctype html>")
    assert files["pftrace"].stat().st_size > 100
    assert json.loads(files["speedscope"].read_text())["exporter"] == "preroll"


def test_no_hook_records_no_imports(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    code = "import json, os; print(os.environ.get('PYTHONPATH'))"
    assert main(["--no-hook", "--out", str(out), "--", PYTHON, "-c", code]) == 0
    assert profile_file.read(out).imports == {}


def test_a_crash_writes_its_partial_profile_and_fails(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    assert main(["--out", str(out), "--", "sh", "-c", "echo last words; exit 7"]) == 1
    profile = profile_file.read(out)
    assert profile.outcome == "crashed"
    assert profile.lines[-1][1] == "last words"


def test_a_slower_start_than_the_baseline_fails_and_a_faster_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, fast = tmp_path / "slow.json", tmp_path / "fast.json"
    assert main(["--out", str(slow), "--", "sleep", "0.6"]) == 0
    gate = ["--baseline", str(slow), "--fail-above", "10%"]
    assert main([*gate, "--out", str(fast), "--", "sleep", "0.1"]) == 0
    gate = ["--baseline", str(fast), "--fail-above", "10%"]
    assert main([*gate, "--out", str(tmp_path / "b.json"), "--", "sleep", "0.6"]) == 1
    assert "slower than the baseline" in capsys.readouterr().err
    assert main(["diff", str(slow), str(fast)]) == 0
    printed = capsys.readouterr().out
    assert "sleep" in printed and "-0.5" in printed


def test_an_earlier_profile_can_be_shown_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "a.json", tmp_path / "a.html"
    assert main(["--out", str(out), "--", "true"]) == 0
    first = capsys.readouterr().out
    assert main(["show", str(out), "--html", str(page)]) == 0
    assert capsys.readouterr().out == first
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fail-above", "10%", "--", "true"], "needs --baseline"),
        (["--baseline", "nowhere.json", "--", "true"], "cannot be read"),
        (["--timeout", "soon", "--", "true"], "--timeout 'soon'"),
        (["--html", "nowhere/at/all.html", "--", "true"], "there is no folder"),
        (["--recorder", "magic", "--", "true"], "allowed: auto"),
        (["--engine", "magic", "--", "true"], "--engine magic"),
        (["--ready", "(", "--", "true"], "not a regular expression"),
        ([], "no command"),
    ],
)
def test_wrong_usage_says_what_is_allowed(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        main(arguments)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_keeps_the_partial_profile_and_leaves_nothing_behind(tmp_path: Path) -> None:
    out, mark = tmp_path / "a.json", f"62.{os.getpid():07d}"
    program = "import sys; from preroll.cli.main import main; sys.exit(main())"
    words = ["profile", "--ready", "NEVER", "--out", str(out), "--", "sh", "-c"]
    script = f"touch {tmp_path}/runs; sleep {mark}"
    running = subprocess.Popen([PYTHON, "-c", program, *words, script])
    deadline = time.monotonic() + 30
    while not (tmp_path / "runs").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=30) == 130
    assert profile_file.read(out).outcome == "interrupted"
    commands = [p.info["cmdline"] or () for p in psutil.process_iter(["cmdline"])]
    assert not [line for line in commands if mark in line]
