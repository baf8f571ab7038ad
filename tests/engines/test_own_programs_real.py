"""Programs and applications of one's own, started as their stage says and asked over HTTP."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from preroll.engines.cause import real_cause
from preroll.errors import InputError

from .conftest import launch_of, problems_of, stage_of
from .test_llamacpp_real import call, running, wait_ready

APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
"""


def test_an_asgi_application_listens_on_its_socket(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text(APP)
    stage = stage_of("asgi", 'app = "mine:app"\ncwd = "code"')
    launch = launch_of(stage, tmp_path, f"unix:{tmp_path}/s")
    assert launch.slots == 64
    output = tmp_path / "out"
    with running(launch, output) as process:
        wait_ready(launch, process, output)
        assert call(launch.address, "/anything") == (200, b"hello")
        process.terminate()
        process.wait(30)
    assert "Application startup complete" in output.read_text()


def test_an_application_that_fails_to_import_says_why(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import nosuchmodule\n")
    launch = launch_of(stage_of("asgi", 'app = "mine:app"'), tmp_path, f"unix:{tmp_path}/s")
    output = tmp_path / "out"
    with running(launch, output) as process:
        assert process.wait(60) != 0
    cause = real_cause(output.read_text().splitlines())
    assert cause == "ModuleNotFoundError: No module named 'nosuchmodule'"


def test_uvicorns_own_limit_would_fight_the_door() -> None:
    message = problems_of("asgi", 'args = ["--limit-concurrency", "4"]')
    assert "use max_concurrency" in message


def test_a_program_listens_on_the_port_it_is_given(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = f'command = ["{sys.executable}", "-m", "http.server", "-b", "127.0.0.1", "{{port}}"]'
    launch = launch_of(stage_of("command", command), tmp_path, f"tcp:127.0.0.1:{port}")
    output = tmp_path / "out"
    with running(launch, output) as process:
        wait_ready(launch, process, output, path="/")


def test_a_program_beside_the_app_file_is_found_in_its_folder(tmp_path: Path) -> None:
    program = tmp_path / "serve.sh"
    program.write_text("#!/bin/sh\n")
    launch = launch_of(stage_of("command", 'command = "./serve.sh {port}"'), tmp_path)
    assert launch.argv[0] == str(program)
    with pytest.raises(InputError):
        launch_of(stage_of("command", 'command = "./serve.sh {port}"\ncwd = "/"'), tmp_path)
