"""Without the right to make control groups the tree is owned all the same."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from holder_bench import Bench, Peer

NOBODY = 65534


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Holders of a user without rights; when we are one ourselves, our own."""
    root = Path(tempfile.mkdtemp(prefix="h-"))
    bench = Bench(root, NOBODY if os.getuid() == 0 else None)
    try:
        yield bench
    finally:
        bench.close()
        shutil.rmtree(root, ignore_errors=True)


def marked(bench: Bench) -> list[int]:
    """Living processes that were started under this bench's holder."""
    mark = b"PREROLL_HOLDER_DIR=" + os.fsencode(bench.root)
    found = []
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and mark in Path(entry.path, "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def follow_to(bench: Bench, text: str) -> str:
    peer = bench.peer()
    peer.send(b'{"op": "lines", "follow": true}\n')
    while text not in (line := peer.read()).get("text", ""):
        assert "ok" not in line, f"{text} was never printed"
    found: str = line["text"]
    return found


def status_of(peer: Peer) -> dict[str, Any]:
    status: dict[str, Any] = peer.ask("status")["status"]
    if status["limits_applied"]["kill"] != "descendants":
        pytest.skip("this user may make control groups")
    return status


def test_what_is_not_applied_is_said(bench: Bench) -> None:
    peer = bench.start("sleep", "1000", limits={"memory_bytes": 1 << 30, "nice": -5})
    status = status_of(peer)
    assert status["limits_applied"]["memory"].startswith("none: ")
    assert status["limits_applied"]["nice"].startswith("none: ")
    assert status["cgroups"] == [] and status["tree"]["processes"] == 1


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &); echo up; sleep 1000",
        "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 1000; sleep 1000\" & echo up; sleep 1000",
        "echo up; while :; do (sleep 0.01 &); (setsid sh -c 'sleep 0.02; sleep 1000' &); done",
    ],
    ids=["sessions", "stubborn", "storm"],
)
def test_every_descendant_is_ended(bench: Bench, script: str) -> None:
    peer = bench.start("sh", "-c", script)
    status_of(peer)
    follow_to(bench, "up")
    ended = peer.ask("stop", grace_ms=300)["status"]
    assert ended["state"] == "exited" and ended["tree"]["processes"] == 0
    assert marked(bench) == []


def test_what_a_process_leaves_behind_is_ended(bench: Bench) -> None:
    peer = bench.start("sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & exit 4")
    status_of(peer)
    ended = peer.ask("wait")["status"]
    assert ended["exit"] == {"code": 4} and "left 2 behind" in ended["error"]
    assert marked(bench) == []


def test_a_killed_holder_takes_the_direct_child_along(bench: Bench) -> None:
    peer = bench.start(sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)")
    status = status_of(peer)
    os.kill(status["holder_pid"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while marked(bench):
        assert time.monotonic() < deadline
        time.sleep(0.01)
