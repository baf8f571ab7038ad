"""Replicas of a stage under `preroll serve`: what is restarted, and what is said of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from served import Served, until

SOURCE = """
import ctypes, os, time
from preroll import Stage, StageFatal

def hold(phase):
    print("holding", phase, flush=True)
    time.sleep(0.03)  # a phase of no length is not billed
    while os.path.exists("hold-" + phase): time.sleep(0.01)

hold("init")

class Mine(Stage):
    def load(self): hold("load")
    def compile(self): hold("compile")
    def warm(self): hold("warm")
    def __call__(self, body: dict):
        how = body.get("how")
        if how == "fatal": raise StageFatal("the device fell off the bus")
        if how == "segfault": ctypes.string_at(0)
        if how == "exit": os._exit(3)
        return {"pid": os.getpid()}
"""

TOML = """
[stage.mine]
engine = "python"
class = "mine:Mine"
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "mine.py").write_text(SOURCE)
    made = Served(tmp_path, TOML)
    yield made
    made.end()


def post(service: Served, body: Any) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        data = json.dumps(body)
        connection.request("POST", "/", data, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("phase", ["init", "load", "compile", "warm"])
def test_a_replica_killed_in_any_phase_of_its_start_is_started_again(
    service: Served, phase: str
) -> None:
    hold = service.folder / f"hold-{phase}"
    hold.touch()
    service.start(wait=False)

    def holding() -> int:
        """The pid of the replica that stands in this phase, said in its own log."""
        for folder in service.state.holders.glob("mine-*"):
            with suppress(OSError):  # the holder is still writing its first
                status = json.loads((folder / "status.json").read_text())
                said = f"holding {phase}" in (folder / "log").read_text()
                if said and status["exit"] is None:
                    return int(status["pid"])
        return 0

    pid = until(holding, "holding")
    hold.unlink()
    os.kill(pid, signal.SIGKILL)
    service.wait_said("serving on")
    status, answer = post(service, {})
    assert status == 200 and answer["pid"] != pid


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("fatal", 503, "the device fell off the bus"),
        ("segfault", 502, "killed by SIGSEGV"),
        ("exit", 502, "exited with code 3"),
    ],
)
def test_a_replica_that_dies_of_a_request_comes_back_and_says_why(
    service: Served, how: str, status: int, said: str
) -> None:
    service.start()
    first = post(service, {})[1]["pid"]
    assert post(service, {"how": how})[0] == status
    until(lambda: post(service, {})[1].get("pid", first) != first, "another replica answers")
    assert any(said in line for line in service.output), "\n".join(service.output)


def test_the_phases_of_a_start_are_billed_to_their_waits(service: Served) -> None:
    service.start()
    (start,) = service.starts(1)
    waits = [phase.wait.value for phase in start.phases]
    assert [w for w in ("init", "load", "compile", "warm") if w in waits] == [
        "init",
        "load",
        "compile",
        "warm",
    ]
    assert sum(phase.duration_s for phase in start.phases) == pytest.approx(start.total_s)
