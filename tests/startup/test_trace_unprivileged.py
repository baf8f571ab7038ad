"""The recorder without rights: it says why it samples, and what it cannot see stays unknown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from preroll.instruments.startup.recorder import find_program

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


@pytest.fixture
def program() -> Iterator[Path]:
    """A copy of the recorder where everybody can reach it."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    folder.chmod(0o755)
    copy = Path(shutil.copy(find_program(), folder))
    copy.chmod(0o755)
    yield copy
    shutil.rmtree(folder)


@contextmanager
def traced(command: list[str], program: Path) -> Iterator[tuple[dict[str, Any], Any]]:
    """Both the recorder and `command` run as nobody; gives its first words, and how to explain."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started_ns = time.monotonic_ns()
    with (
        subprocess.Popen(command, user=NOBODY, cwd="/") as target,
        subprocess.Popen(
            [program, "--mode", "auto", "--follow", str(os.getpid())], user=NOBODY, cwd="/", **pipes
        ) as trace,
    ):
        assert trace.stdin and trace.stdout
        first = json.loads(trace.stdout.readline())

        def say(**request: int) -> None:
            trace.stdin.write(json.dumps(request) + "\n")
            trace.stdin.flush()

        def explain() -> Any:
            say(from_ns=started_ns, to_ns=time.monotonic_ns())
            return json.loads(trace.stdout.readline())

        try:
            say(pid=target.pid, owner=0, spawned_ns=started_ns)
            yield first, explain
        finally:
            target.kill()
            trace.kill()


def seconds(partition: Any) -> Counter[str]:
    totals: Counter[str] = Counter()
    for row in partition["slices"]:
        totals[row["cause"]] += row["end_ns"] - row["start_ns"]
    return Counter({cause: ns / 1e9 for cause, ns in totals.items()})


def wait_s(duration_s: float) -> None:
    """Lets the command go on for so long: the recording is of that time."""
    deadline = time.monotonic() + duration_s
    while time.monotonic() < deadline:
        time.sleep(0.01)


def test_without_rights_it_samples_and_says_why(program: Path) -> None:
    with traced(["sleep", "10"], program) as (first, explain):
        assert first["mode"] == "proc"
        assert first["reason"]
        wait_s(0.4)
        found = seconds(explain())
    assert found["sleep"] >= 0.25


def test_a_process_that_may_not_be_looked_into_is_unknown_not_guessed(program: Path) -> None:
    # Linux lets nobody look into a process that says so (prctl PR_SET_DUMPABLE 0), as under a
    # ptrace restriction; what it runs can still be counted.
    code = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); time.sleep(10)"
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    with traced([python, "-c", code], program) as (_, explain):
        wait_s(0.6)
        found = seconds(explain())
    assert found["unknown"] >= 0.25
    assert found["sleep"] <= 0.2
