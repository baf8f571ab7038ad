"""Parts of `serve` alone: causes, tables, records, the state directory, HTTP, publishing."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from served import until

from preroll.backends.base import Exit, ProcessState, ProcessStatus
from preroll.cli.serve import split_flags
from preroll.cli.service import app_name, read_app
from preroll.config import parse_app
from preroll.engines.base import Probe, get_engine
from preroll.errors import InputError, UnavailableError
from preroll.serve import statedir
from preroll.serve.cause import explain, how_it_ended, last_line
from preroll.serve.http import Lines, request
from preroll.serve.probing import NotServingError, wait_until_healthy
from preroll.serve.publish import Publisher
from preroll.serve.record import ReplicaRecord, spec_digest
from preroll.serve.stage import quantile
from preroll.serve.statedir import Lock, StateDir, default_state, owner, read_json, write_json
from preroll.serve.tables import Endpoint, StartEstimate, tables

APP = """
[serve]
keys = [{ id = "a", sha256 = "%s" }]
[stage.chat]
engine = "command"
command = ["true", "{port}"]
queue = { max_wait = "1500ms", max_depth = 7 }
slo = { ttft_p95 = "800ms" }
[[route]]
path = "/echo/*"
stage = "chat"
timeout = "3s"
""" % ("0" * 64)


def status(**facts: Any) -> ProcessStatus:
    base = {"id": "r", "state": ProcessState.EXITED, "pid": 1, "boot_id": "", "owner_pid": 2}
    return ProcessStatus(**{**base, **facts})


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"exit": Exit(code=3)}, "exited with code 3"),
        ({"exit": Exit(signal=9)}, "killed by SIGKILL"),
        ({"exit": Exit(signal=9), "oom_kills": 1}, "killed by SIGKILL (out of memory"),
        ({"exit": Exit(signal=40)}, "killed by signal 40"),
        ({"error": "exec failed: no such file"}, "exec failed: no such file"),
        ({"exit": Exit(code=0), "error": "left 2 behind"}, "0; left 2 behind (an engine must stay"),
        ({"exit": Exit(code=0), "spawned_ns": 0 + 10**9, "exited_ns": 25 * 10**8}, "after 1.5 s"),
    ],
)
def test_an_end_is_told_in_words(facts: dict[str, Any], words: str) -> None:
    assert words in how_it_ended(status(**facts))


def test_the_cause_is_the_last_line_even_when_the_engine_buries_it() -> None:
    lines = ["loading", "ValueError: no space on device", "cleaning up", "bye"]
    assert explain("exited", lines).splitlines()[-1].strip() == "ValueError: no space on device"
    told = last_line(explain("exited", ["ok", "ValueError: no\x07 space " + "x" * 1000]))
    assert told.startswith("ValueError: no  space x") and len(told) == 300
    assert last_line("") == ""
    assert explain("exited", []) == "exited; it printed nothing"
    assert len(explain("exited", [f"line {n}" for n in range(1000)]).splitlines()) < 20


def test_tables_are_what_the_protocol_says() -> None:
    app = parse_app(APP)
    endpoint = Endpoint("chat-1-a", "tcp:127.0.0.1:9", 4, 1000, "127.0.0.1", None, None)
    value = tables(app, {"chat": [endpoint]}, {"chat": StartEstimate(900, 12)}, 5)
    stage = value["stages"]["chat"]
    assert value["version"] == 5
    assert (stage["max_wait_ms"], stage["max_queue"]) == (1500, 7)
    assert stage["start"] == {"expected_ms": 900, "started_ns": 12}
    assert stage["slo"] == {"ttft_ms": 800, "itl_ms": None, "pace_us": None}
    assert stage["replicas"][0]["state"] == "ready"
    assert value["routes"][0]["timeout_ms"] == 3000
    assert value["keys"] == [{"id": "a", "sha256": "0" * 64}]


def test_bounds_of_queue_and_scaling_restart_no_replica_but_arguments_do(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        stage = parse_app(text).stages["chat"]
        return spec_digest(get_engine(stage.engine), stage, tmp_path)

    first = digest(APP)
    assert digest(APP.replace("1500ms", "2s")) == first
    assert digest(APP.replace('"true", "{port}"', '"true", "-x", "{port}"')) != first
    assert digest(APP.replace("slo =", 'env = { A = "1" }\nslo =')) != first


def test_a_record_survives_its_file_and_a_foreign_one_is_none(tmp_path: Path) -> None:
    record = ReplicaRecord("c-1-a", "c", 1, "d", "unix:/x", "boot", 5, 7, ("0",))
    write_json(tmp_path / "r", record.to_json())
    assert ReplicaRecord.from_json(read_json(tmp_path / "r")) == record
    for foreign in (None, [], {"version": 0}, {"version": 1, "id": "x"}, {"version": 2}):
        assert ReplicaRecord.from_json(foreign) is None


def test_a_lock_names_its_owner_and_is_freed_by_a_kill(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "s")
    state.prepare()
    code = (
        "import sys, time; from pathlib import Path\n"
        "from preroll.serve.statedir import Lock, StateDir\n"
        "lock = Lock(StateDir(Path(sys.argv[1]))); print('locked', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", code, str(state.root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        assert owner(state) == process.pid
        with pytest.raises(UnavailableError, match=str(process.pid)):
            Lock(state)
        process.kill()
    assert owner(state) is None
    lock = Lock(state)
    assert owner(state) == os.getpid()
    lock.release()
    assert owner(state) is None


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_the_state_directory_follows_the_xdg_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/x")
    assert default_state("chat") == Path("/var/x/preroll/chat")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the specification says: ignore
    assert default_state("chat") == Path.home() / ".local/state/preroll/chat"


def test_flags_after_two_dashes_are_the_engines() -> None:
    assert split_flags(["vllm", "m", "--", "--a", "--", "b"]) == (["vllm", "m"], ["--a", "--", "b"])
    app = read_app("vllm", "org/model", ["--max-model-len=8"], ("127.0.0.1:0",))
    assert app.stages["main"].args == ("--max-model-len=8",)
    assert app.serve.listen == ("127.0.0.1:0",)
    assert app_name(app, "vllm", "org/model") == "vllm-model"


def test_an_app_file_takes_no_target_and_a_bad_address_is_named(tmp_path: Path) -> None:
    path = tmp_path / "app.toml"
    path.write_text(APP)
    with pytest.raises(InputError, match="no target"):
        read_app(str(path), "x", [], ())
    with pytest.raises(InputError, match="--listen nowhere"):
        read_app(str(path), None, [], ("nowhere",))
    assert read_app(str(path), None, [], ("0.0.0.0:1",)).serve.listen == ("0.0.0.0:1",)


def test_quantiles_are_nearest_rank() -> None:
    assert quantile([], 0.9) is None
    assert quantile([3.0], 0.9) == 3.0
    assert quantile([float(n) for n in range(10)], 0.9) == 9.0
    assert quantile([float(n) for n in range(10)], 0.5) == 5.0


# HTTP and publishing against a real server on a socket ------------------------------------------


class Admin(http.server.BaseHTTPRequestHandler):
    """A door's admin side, small: takes tables, refuses older ones."""

    version = 0
    taken: list[dict[str, Any]]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def reply(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/lines":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"n": 1}\n{"n": 2}\n')
        elif self.path == "/healthz":
            self.reply(200, {"tables_version": type(self).version})
        else:
            self.reply(404, {})

    def do_PUT(self) -> None:
        value = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if value["version"] <= type(self).version:
            self.reply(409, {})
        else:
            type(self).version = value["version"]
            self.taken.append(value)
            self.reply(200, {})


@contextmanager
def admin(version: int = 0) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    taken: list[dict[str, Any]] = []
    handler = type("Handler", (Admin,), {"version": version, "taken": taken})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"tcp:127.0.0.1:{server.server_address[1]}", taken
        finally:
            server.shutdown()
            thread.join()


def test_a_request_gives_status_and_body_or_says_who_did_not_answer(tmp_path: Path) -> None:
    with admin(7) as (address, _):
        assert request(address, "GET", "/healthz").json() == {"tables_version": 7}
        assert request(address, "GET", "/none").status == 404
        assert [json.loads(line)["n"] for line in Lines(address, "/lines")] == [1, 2]
        with pytest.raises(UnavailableError, match="404"):
            list(Lines(address, "/none"))
    with pytest.raises(UnavailableError, match="GET /x at unix:"):
        request(f"unix:{tmp_path}/none", "GET", "/x")


def test_tables_are_published_once_and_only_when_they_differ(tmp_path: Path) -> None:
    async def scene() -> list[dict[str, Any]]:
        content = {"value": 1}
        with admin() as (address, taken):
            publisher = Publisher(
                tmp_path / "tables", address, lambda v: {"version": v, **content}, lambda: None
            )
            task = asyncio.create_task(publisher.run())
            async with asyncio.timeout(30):
                await publisher.published()
                await publisher.published()
                content["value"] = 2
                await publisher.published()
            task.cancel()
            return taken

    taken = asyncio.run(scene())
    assert [t["value"] for t in taken] == [1, 2]
    assert read_json(tmp_path / "tables") == taken[-1]


def test_a_door_with_newer_tables_is_surpassed(tmp_path: Path) -> None:
    async def scene() -> list[dict[str, Any]]:
        with admin(41) as (address, taken):
            publisher = Publisher(
                tmp_path / "tables", address, lambda v: {"version": v}, lambda: None
            )
            task = asyncio.create_task(publisher.run())
            async with asyncio.timeout(30):
                await publisher.published()
            task.cancel()
            return taken

    assert [t["version"] for t in asyncio.run(scene())] == [42]


def test_logs_of_the_latest_ended_replicas_are_kept_and_running_ones_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statedir, "KEPT_LOGS", 2)
    state = StateDir(tmp_path)
    state.prepare()
    state.run.mkdir()
    for number, name in enumerate(["old", "older-but-running", "late", "latest", "never-began"]):
        folder = state.holder(name)
        folder.mkdir()
        running = "running" if name == "older-but-running" else "exited"
        if name != "never-began":
            write_json(folder / "status.json", {"state": running})
        os.utime(folder, (number, 0 if name == "never-began" else number + 1))
    statedir.forget_old(state)
    assert {f.name for f in state.holders.iterdir()} == {"older-but-running", "late", "latest"}


def test_a_terminal_that_is_gone_does_not_end_the_service() -> None:
    code = (
        "from preroll.cli.progress import Progress; p = Progress()\n"
        "for n in range(3): p.event('wanted', 'chat', None, {'replicas': n, 'reason': 'r'})\n"
        "print('alive')"
    )
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=write_end, timeout=60
    )
    os.close(write_end)
    assert done.stdout == b"alive\n"


class Starting(Admin):
    """A server that starts: who prefers to wait is answered once it is ready."""

    asked: list[str | None]
    ready: threading.Event

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Prefer"))
        if self.headers.get("Prefer"):
            self.ready.wait(30)
        self.reply(200 if self.ready.is_set() else 503, {})


def test_a_server_that_can_wait_is_asked_once() -> None:
    asked: list[str | None] = []
    ready = threading.Event()
    handler = type("Handler", (Starting,), {"asked": asked, "ready": ready})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"tcp:127.0.0.1:{server.server_address[1]}"
        asking = threading.Thread(
            target=wait_until_healthy,
            args=(address, Probe("/health"), time.monotonic(), 60.0, threading.Event()),
        )
        asking.start()
        until(lambda: asked, "it is asked")
        ready.set()
        asking.join(60)
        server.shutdown()
        thread.join()
    assert asked == ["wait=1"]


def test_a_socket_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stop = threading.Event()
    with pytest.raises(NotServingError, match=f"no socket at unix:{path} yet"):
        wait_until_healthy(f"unix:{path}", Probe(None), time.monotonic(), 0.05, stop)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        wait_until_healthy(f"unix:{path}", Probe(None), time.monotonic(), 30.0, stop)
