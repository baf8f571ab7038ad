"""Launches of real programs through a real holder."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import psutil
import pytest

from preroll.core import Start, Wait
from preroll.engines.base import get_engine
from preroll.errors import InputError, UnavailableError
from preroll.instruments.starts_launch import Command, HolderLauncher, environment
from preroll.instruments.starts_ready import Ready, parse_ready
from preroll.instruments.starts_stage import free_port

SERVER = """
import http.server, sys, time
print("INFO:     Started server process", flush=True)
time.sleep(0.2)
handler = http.server.SimpleHTTPRequestHandler
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), handler)
print("INFO:     Application startup complete", flush=True)
server.serve_forever()
"""


def command(code: str, ready: str | None, *arguments: str, port: int | None = None) -> Command:
    return Command(
        argv=(sys.executable, "-c", code, *arguments),
        env=environment(),
        cwd=Path("/"),
        ready=parse_ready(ready, port),
        timeout_s=60.0,
        marks=get_engine("asgi").marks,
    )


def launch(made: Command) -> Start:
    async def once() -> Start:
        root = Path(tempfile.mkdtemp(prefix="preroll-test-"))
        async with HolderLauncher(root, lambda _: made) as launcher:
            return await launcher(1)

    return asyncio.run(once())


def num_with(mark: str) -> int:
    """Processes with this word in their command line."""
    lines = [process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"])]
    return sum(any(mark in word for word in line) for line in lines)


def wait_num(mark: str, more_than: int, at_most: int) -> None:
    deadline = time.monotonic() + 60
    while not more_than < num_with(mark) <= at_most:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def mark() -> str:
    return f"mark-{uuid.uuid4()}"


def test_a_program_that_ends_is_timed_to_its_end() -> None:
    start = launch(command("import time; time.sleep(0.3)", None))
    assert start.total_s >= 0.3
    assert [p.wait for p in start.phases] == [Wait.INIT]


def test_a_server_is_ready_when_its_port_connects_and_its_lines_bound_the_waits(mark: str) -> None:
    port = free_port()
    start = launch(command(SERVER, None, str(port), mark, port=port))
    assert [p.wait for p in start.phases][:2] == [Wait.INIT, Wait.LOAD]
    assert sum(p.duration_s for p in start.phases) == pytest.approx(start.total_s)
    load_s = sum(p.duration_s for p in start.phases if p.wait is Wait.LOAD)
    assert load_s >= 0.2
    assert num_with(mark) == 0


def test_a_url_and_a_line_can_mean_ready() -> None:
    port = free_port()
    start = launch(command(SERVER, "http://127.0.0.1:{port}/", str(port), port=port))
    assert start.total_s >= 0.2
    start = launch(command("import signal; print('up', flush=True); signal.pause()", "^up$"))
    assert start.total_s > 0


def test_a_program_that_ends_before_it_is_ready_says_why() -> None:
    with pytest.raises(UnavailableError) as raised:
        launch(command("print('hello'); import nosuchmodule", "never"))
    lines = str(raised.value).splitlines()
    assert lines[0] == "ended with status 1 before it was ready"
    assert lines[-1] == "  ModuleNotFoundError: No module named 'nosuchmodule'"
    assert "  hello" in lines


def test_a_killed_program_and_a_missing_one_say_so() -> None:
    with pytest.raises(UnavailableError, match="killed by signal 9"):
        launch(command("import os; os.kill(os.getpid(), 9)", "never"))
    missing = Command(
        ("/nosuchprogram",), environment(), Path("/"), parse_ready(None, None), timeout_s=60.0
    )
    with pytest.raises(UnavailableError, match=r"nosuchprogram|No such file"):
        launch(missing)


def test_a_program_that_never_gets_ready_is_ended_with_its_children(mark: str) -> None:
    code = "import os, time; os.fork() or os.setsid(); time.sleep(600)"
    made = command(code, "never", mark)
    short = Command(made.argv, made.env, made.cwd, made.ready, timeout_s=1.0)
    with pytest.raises(UnavailableError, match="not ready within 1 s"):
        launch(short)
    wait_num(mark, -1, 0)


def test_something_that_answers_already_is_not_mistaken_for_the_launch() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(InputError, match="answers there before the launch"):
            launch(command("pass", str(port)))


def test_an_interrupt_ends_the_program_and_leaves_nothing(mark: str) -> None:
    made = command("print('begun', flush=True); import time; time.sleep(600)", "never", mark)

    def interrupt() -> None:
        wait_num(mark, 0, 9)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        launch(made)
    thread.join()
    wait_num(mark, -1, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "1 to 65535"),
        ("70000", "1 to 65535"),
        ("(", "regular expression"),
        ("http://", "allowed"),
    ],
)
def test_a_wrong_ready_says_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_ready(text, None)


def test_ready_is_told_by_its_shape() -> None:
    kinds: dict[str | None, Ready] = {
        text: parse_ready(text, 80) for text in ("80", "{port}", "http://h/x", "https://h", "up")
    }
    assert [type(kind).__name__ for kind in kinds.values()] == [
        "Connects", "Connects", "Answers", "Answers", "LineMatches",
    ]  # fmt: skip
    assert parse_ready(None, 80) == kinds["80"]
