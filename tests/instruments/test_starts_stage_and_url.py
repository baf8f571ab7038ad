"""A stage launched as `serve` would, and cold requests to a server."""

from __future__ import annotations

import asyncio
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from preroll.config import Stage, parse_app
from preroll.core import Start, Wait
from preroll.errors import InputError, UnavailableError
from preroll.instruments.starts_launch import HolderLauncher
from preroll.instruments.starts_ready import split_url
from preroll.instruments.starts_stage import command_of
from preroll.instruments.starts_url import UrlLauncher

APP = """
ready = False
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    status = 200 if scope["path"] != "/broken" else 500
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
"""


def stage(text: str, directory: Path) -> Stage:
    (directory / "mine.py").write_text(APP)
    return parse_app(f"[stage.s]\n{text}", directory / "app.toml").stages["s"]


def launch(made: Stage, directory: Path) -> Start:
    async def once() -> Start:
        root = directory / "state"
        async with HolderLauncher(root, lambda at: command_of(made, directory, at)) as launcher:
            return await launcher(1)

    return asyncio.run(once())


def test_a_stage_is_ready_after_its_warmup(tmp_path: Path) -> None:
    text = 'engine = "asgi"\napp = "mine:app"\nhealth = "/h"\nwarmup = [{ path = "/warm" }]\n'
    start = launch(stage(text, tmp_path), tmp_path)
    assert start.stage == "s"
    assert start.phases[-1].wait is Wait.WARM
    assert start.phases[-1].label == "warm-up"


def test_a_stage_without_health_is_ready_when_it_answers(tmp_path: Path) -> None:
    start = launch(stage('engine = "asgi"\napp = "mine:app"\n', tmp_path), tmp_path)
    assert Wait.WARM not in [p.wait for p in start.phases]
    command = f'engine = "command"\ncommand = ["{sys.executable}", "-m", "http.server", "{{port}}"]'
    assert launch(stage(command, tmp_path), tmp_path).total_s > 0


def test_a_failed_warmup_fails_the_launch(tmp_path: Path) -> None:
    text = 'engine = "asgi"\napp = "mine:app"\nwarmup = [{ path = "/broken" }]\n'
    with pytest.raises(UnavailableError, match="warm-up GET /broken: status 500"):
        launch(stage(text, tmp_path), tmp_path)


def test_a_server_that_already_runs_cannot_be_launched(tmp_path: Path) -> None:
    made = stage('engine = "url"\nurl = "http://127.0.0.1:1"\n', tmp_path)
    with pytest.raises(InputError, match="starts nothing"):
        command_of(made, tmp_path, tmp_path)


class Cold(http.server.BaseHTTPRequestHandler):
    """Refuses twice after a rest, as a server that scales from zero does."""

    refusals_left = 2
    posted: bytes = b""

    def do_GET(self) -> None:
        if self.path == "/gone":
            self.send_response(404)
        elif type(self).refusals_left:
            type(self).refusals_left -= 1
            self.send_response(503)
        else:
            self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        type(self).posted = self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Cold.refusals_left = 2
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cold)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()
    thread.join()


def ask(url: str, body: bytes = b"", timeout_s: float = 60.0) -> Start:
    return asyncio.run(UrlLauncher(*split_url(url), body, 0.0, timeout_s)(1))


def test_a_cold_request_lasts_until_the_first_answer(server: str) -> None:
    start = ask(f"{server}/x?y=1", b'{"a": 1}')
    assert [p.label for p in start.phases] == ["request, 2 refusals before its answer"]
    assert Cold.posted == b'{"a": 1}'
    assert ask(server).phases[0].label == "request"


def test_an_answer_that_will_not_change_is_an_error(server: str) -> None:
    with pytest.raises(UnavailableError, match="status 404"):
        ask(f"{server}/gone")


def test_a_request_that_is_never_answered_ends(server: str) -> None:
    Cold.refusals_left = 10**9
    with pytest.raises(UnavailableError, match=r"no answer within 0\.3 s|timed out"):
        ask(server, timeout_s=0.3)


def test_urls_become_addresses() -> None:
    assert split_url("http://h") == ("tcp:h:80", "/")
    assert split_url("https://h/p?q=1") == ("tls:h:443", "/p?q=1")
    for wrong in ("ftp://h", "h:80", "http://h:x", "http://"):
        with pytest.raises(InputError):
            split_url(wrong)
