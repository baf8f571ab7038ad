"""A start that goes on is waited for by who asks after it, instead of being asked again."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from worker_lab import UnixConnection, WorkerProcess, until

from preroll.engines.cause import real_cause
from preroll.worker.app import HEALTH

LOADING = """
import os, time
class Mine(Stage):
    def load(self):
        print("loads", flush=True)
        while not os.path.exists("go"): time.sleep(0.01)
        if os.path.exists("wrong"): raise ValueError("wrong")
    def __call__(self, body: bytes): return body
"""


def ask(mine: WorkerProcess, prefer: str) -> UnixConnection:
    """The question has left when this returns: whoever connects later is taken later."""
    connection = UnixConnection(mine.socket)
    connection.request("GET", HEALTH, headers={"Prefer": prefer} if prefer else {})
    return connection


def answer(connection: UnixConnection) -> tuple[int, str]:
    try:
        response = connection.getresponse()
        return response.status, json.loads(response.read())["phase"]
    finally:
        connection.close()


def health(mine: WorkerProcess, prefer: str) -> tuple[int, str]:
    return answer(ask(mine, prefer))


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[WorkerProcess]:
    process = WorkerProcess(tmp_path, LOADING)
    try:
        process.wait_said("loads")
        yield process
    finally:
        process.end()


@pytest.mark.parametrize(
    "prefer",
    ["", "wait=0", "wait=", "wait=-1", "wait=1e9", "wait=" + "9" * 5000, "respond-async"],
)
def test_who_does_not_wait_is_answered_at_once(mine: WorkerProcess, prefer: str) -> None:
    assert health(mine, prefer) == (503, "load")


def test_who_waits_is_answered_when_it_is_ready(mine: WorkerProcess, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(answer, ask(mine, "wait=9"))
        assert health(mine, "wait=1") == (503, "load"), "no longer than was asked for"
        assert not waiting.done()
        (tmp_path / "go").touch()
        assert waiting.result() == (200, "ready")


@pytest.mark.parametrize("end", ["SIGTERM", "failure"])
def test_who_waits_does_not_hold_up_the_end(mine: WorkerProcess, tmp_path: Path, end: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(answer, ask(mine, "wait=999999"))
        # Its own answer shows that the request before it has been taken.
        assert health(mine, "") == (503, "load")
        if end == "SIGTERM":
            mine.process.send_signal(signal.SIGTERM)
            assert waiting.result() == (503, "load")
        else:
            (tmp_path / "wrong").touch()
            (tmp_path / "go").touch()
            assert isinstance(waiting.exception(), OSError)
        (tmp_path / "go").touch()
        until(lambda: mine.process.poll() is not None, "it ends")


@pytest.mark.parametrize("hook", ["load", "warm"])
def test_an_input_that_is_wrong_is_told_in_one_line(tmp_path: Path, hook: str) -> None:
    code = f"""
from preroll.errors import InputError
class Mine(Stage):
    def {hook}(self): raise InputError("threads is 0; 1 or more is allowed")
    def __call__(self, body: bytes): return body
"""
    mine = WorkerProcess(tmp_path, code)
    assert mine.wait() == 2
    said = mine.lines[mine.lines.index(f"preroll.worker: phase {hook}") + 1 :]
    assert said == [f"preroll.worker: {hook}() failed: threads is 0; 1 or more is allowed"]
    assert real_cause(["OSError: handled before", *mine.lines]) == said[0]


def test_any_other_error_of_a_start_says_where_it_was_raised(tmp_path: Path) -> None:
    code = """
from preroll.errors import UnavailableError
class Mine(Stage):
    def load(self): raise UnavailableError("no weights") from KeyError("w.bin")
    def __call__(self, body: bytes): return body
"""
    mine = WorkerProcess(tmp_path, code)
    assert mine.wait() == 1
    assert "in load" in mine.output and "KeyError: 'w.bin'" in mine.output
    assert mine.lines[-1] == "preroll.errors.UnavailableError: no weights"
