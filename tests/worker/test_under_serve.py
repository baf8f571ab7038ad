"""Replicas of a stage under `preroll serve`: what is restarted, and what is said of it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
from collections import Counter
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
        if how == "slow": time.sleep(0.05)
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
    service.wait_said(said)


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


def test_a_thousand_requests_at_one_slow_stage_wait_their_turn_or_are_told_to_come_back(
    service: Served,
) -> None:
    service.write(TOML + "max_concurrency = 8\nqueue = { max_wait = '1s' }\n")
    service.start()
    answers = asyncio.run(flood(service.port, 1000))
    statuses = Counter(status for status, _ in answers)
    assert statuses.keys() == {200, 429}, statuses
    assert all(b"retry-after: " in head for status, head in answers if status == 429)
    (replica,) = service.ready("mine")
    pages = int(Path(f"/proc/{service.pid_of(replica)}/statm").read_text().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < 200e6


async def flood(port: int, num: int) -> list[tuple[int, bytes]]:
    """So many requests at the same time, each on a connection of its own: status and head."""
    body = json.dumps({"how": "slow"}).encode()
    request = (
        b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    )

    async def one() -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request + body)
        head = (await reader.read()).partition(b"\r\n\r\n")[0].lower()
        writer.close()
        return int(head.split()[1]), head

    return await asyncio.gather(*(one() for _ in range(num)))
