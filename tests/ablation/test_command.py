"""`preroll ablate` on real programs, under real holders."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from preroll.instruments.ablation import pages
from preroll.instruments.ablation.measure import pairs_of, samples_of
from preroll.instruments.ablation.raw import RawFile

PREROLL = (sys.executable, "-m", "preroll", "ablate")


def ablate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PREROLL, *arguments], cwd=folder, capture_output=True, text=True, timeout=110
    )


def pairs(path: Path) -> int:
    return len(pairs_of(RawFile.read(path)[1])) if path.exists() else 0


@pytest.mark.slow
def test_a_dead_part_saves_what_it_does_not_share(worker: Path, command: list[str]) -> None:
    """Its line is 0.35 s; a live part needs 0.1 s of it, which moves there. Judged by processor
    time, which is planted too and does not depend on what else the machine does."""
    ran = ablate(
        worker, "--without-module", "dead_part", "--ready", "^ready", "--pairs=6",
        "--segment", "cpu", "--json=found.json", "--out=raw", "--", *command,
    )  # fmt: skip
    assert ran.returncode in (0, 3), ran.stderr
    found = json.loads((worker / "found.json").read_text())
    (cpu,) = found["verdict"]["segments"]
    assert cpu["outcome"] == "SAVES", ran.stdout
    assert cpu["saving_s"] == pytest.approx(0.25, abs=0.08)
    grown = {m["name"]: m["grew_s"] for m in found["moved"] if m["kind"] == "import"}
    assert grown["live_part"] > 0.05, grown
    assert grown["dead_part"] < -0.15


@pytest.mark.slow
def test_a_cold_start_is_proved_by_what_was_read(worker: Path, command: list[str]) -> None:
    weights = worker / "weights.bin"
    pages.drop([str(weights)])
    if pages.resident_bytes(weights) != 0:
        pytest.skip("the temporary folder is in memory")
    ran = ablate(
        worker, "--env=A=1", "--ready=^ready", "--pairs=6", "--cache=cold", "--no-explain",
        "--out=raw", "--", *command,
    )  # fmt: skip
    assert ran.returncode in (0, 3), ran.stderr
    samples = samples_of(RawFile.read(worker / "raw")[1])
    assert len(samples) == 6
    assert all(run.read_bytes >= 8 << 20 for pair in samples for run in pair)


def test_what_cannot_be_taken_away_is_needed(worker: Path) -> None:
    words = [sys.executable, str(worker / "needs_it.py")]
    ran = ablate(worker, "--without-module=dead_part", "--ready=^ready", "--", *words)
    assert ran.returncode == 5, ran.stderr
    assert "NEEDED" in ran.stdout
    assert "no encoder" in ran.stdout


def test_a_server_that_is_ready_but_not_healthy_is_needed_too(worker: Path) -> None:
    server = worker / "server.py"
    server.write_text(
        "import http.server, os, sys\n"
        "class Answer(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(500 if 'BROKEN' in os.environ else 200)\n"
        "        self.end_headers()\n"
        "    def log_message(self, *args): pass\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Answer).serve_forever()\n"
    )
    code = (
        "import preroll.instruments.ablation.launch as launch, sys; launch.HEALTH_S = 1.0\n"
        "from preroll.cli.main import main; main()"
    )
    words = [
        sys.executable, "-c", code, "ablate", "--env=BROKEN=1", "--ready={port}",
        "--health=http://127.0.0.1:{port}/health", "--", sys.executable, str(server), "{port}",
    ]  # fmt: skip
    ran = subprocess.run(words, cwd=worker, capture_output=True, text=True, timeout=110)
    assert ran.returncode == 5, ran.stderr
    assert "health check did not pass" in ran.stdout


def test_a_module_that_nobody_imports_is_no_experiment(worker: Path, command: list[str]) -> None:
    ran = ablate(worker, "--without-module=unheard_of", "--ready=^ready", "--", *command)
    assert ran.returncode == 2
    assert "no Python of this command imported it" in ran.stderr


def test_an_interrupt_leaves_a_valid_file_that_is_gone_on_with(
    worker: Path, command: list[str]
) -> None:
    words = [*PREROLL, "--env=A=1", "--ready=loading", "--pairs=6", "--no-explain", "--out=raw"]
    process = subprocess.Popen(
        [*words, "--", *command], cwd=worker, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    path, deadline = worker / "raw", time.monotonic() + 60
    while pairs(path) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"--resume raw" in said
    done = pairs(path)
    assert 1 <= done < 6
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if command[1] in (p.info["cmdline"] or ())
    ]
    ran = ablate(worker, "--resume=raw", "--no-explain", "--json=found.json")
    assert ran.returncode in (0, 3), ran.stderr
    assert json.loads((worker / "found.json").read_text())["verdict"]["total"]["pairs"] == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env=A=1"], "say what to start"),
        (["--", "true"], "one variable"),
        (["--env=A=1", "--pairs=5", "--", "true"], "6 to 1000"),
        (["--env=A=1", "--until=5%", "--pairs=7", "--", "true"], "8 to 1000"),
        (["--env=A=1", "--until=5", "--", "true"], "a share of the start"),
        (["--env=A=1", "--segment=(..b", "--", "true"], "regular expression"),
        (["--env=A=1", "--predict=x.json", "--", "true"], "--without-module"),
        (["--without-module=a", "--predict=x.json", "--", "true"], "cannot be read"),
        (["--env=A=1", "--health=8000", "--", "true"], "http://HOST:PORT"),
        (["--env=A=1", "--timeout=5", "--", "true"], "--timeout"),
        (["--resume=none.jsonl"], "cannot be read"),
    ],
)
def test_wrong_use_is_told_and_writes_nothing(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    ran = ablate(tmp_path, *arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert list(tmp_path.iterdir()) == []
