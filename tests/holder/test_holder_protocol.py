"""The control socket: every request is answered, and nothing sent to it does harm."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from holder_bench import Bench

from preroll.backends.holder_program import find_program

STATUS_FIELDS = {
    "version",
    "id",
    "boot_id",
    "holder_pid",
    "holder_start_ticks",
    "pid",
    "pid_start_ticks",
    "state",
    "generation",
    "spawned_ns",
    "exited_ns",
    "exit",
    "lines",
    "last_line_ns",
    "limits_applied",
    "oom_kills",
    "error",
}


def test_status_has_every_field_of_the_protocol(bench: Bench) -> None:
    # Waits by itself: while a program is replaced it has no memory.
    peer = bench.start(
        sys.executable, "-c", "import time; print('up', flush=True); time.sleep(999)"
    )
    peer.send(b'{"op": "lines", "follow": true}\n')
    assert peer.read()["text"] == "up"
    status = bench.peer().ask("status")["status"]
    assert set(status) >= STATUS_FIELDS | {"tree"}
    assert status["state"] == "running" and status["exit"] is None
    assert set(status["limits_applied"]) >= {"memory", "cpus", "kill"}
    assert status["tree"]["processes"] == 1 and status["tree"]["rss_bytes"] > 0
    stat = Path(f"/proc/{status['pid']}/stat").read_text().rpartition(")")[2].split()
    assert int(stat[19]) == status["pid_start_ticks"]
    saved = json.loads((bench.root / "status.json").read_text())
    assert set(saved) >= STATUS_FIELDS and "tree" not in saved
    assert saved["pid"] == status["pid"]


@pytest.mark.parametrize(
    ("request_line", "named"),
    [
        (b"{}", "op"),
        (b"nonsense", "request"),
        (b"[]", "request"),
        (b'{"op": "explode"}', "explode"),
        (b'{"op": "signal"}', "signal"),
        (b'{"op": "signal", "signal": "TERM"}', "TERM"),
        (b'{"op": "signal", "signal": 0}', "signal 0"),
        (b'{"op": "lines", "since": -1}', "-1"),
        (b'{"op": "upgrade", "argv": "sh"}', "request"),
        (b'{"op": "upgrade", "argv": []}', "argv"),
        (b'{"op": "upgrade", "argv": ["/no/such"]}', "/no/such"),
        (b'{"op": "retire"}', "older"),
        (b'{"op": "release"}', "not ended"),
        (b"\xff\xfe\x00", "request"),
        (b"", "request"),
    ],
)
def test_a_wrong_request_is_answered_and_the_next_one_served(
    bench: Bench, request_line: bytes, named: str
) -> None:
    peer = bench.start("sleep", "1000")
    peer.send(request_line + b"\n")
    reply = peer.read()
    assert reply["ok"] is False and named in reply["error"]
    assert peer.ask("status")["status"]["state"] == "running"


def test_requests_may_be_sent_ahead_and_in_pieces(bench: Bench) -> None:
    peer = bench.start("sh", "-c", "echo one; exit 3")
    peer.send(b'{"op": "wait"}\n{"op": "lin')
    peer.send(b'es"}\n{"op": "status"}\n')
    assert peer.read()["status"]["exit"] == {"code": 3}
    assert peer.read()["text"] == "one"
    assert peer.read() == {"ok": True, "next": 1, "dropped": 0}
    assert peer.read()["status"]["state"] == "exited"


def test_a_limit_bounds_the_lines_and_says_where_to_go_on(bench: Bench) -> None:
    peer = bench.start("seq", "10")
    peer.ask("wait")
    peer.send(b'{"op": "lines", "limit": 4}\n')
    assert [peer.read()["n"] for _ in range(4)] == [1, 2, 3, 4]
    assert peer.read()["next"] == 4
    peer.send(b'{"op": "lines", "since": 4, "limit": 100}\n')
    assert [peer.read()["text"] for _ in range(6)] == ["5", "6", "7", "8", "9", "10"]
    assert peer.read()["next"] == 10
    peer.send(b'{"op": "lines", "since": 18446744073709551615}\n')
    assert peer.read()["ok"] is True


def test_lines_that_are_kept_no_longer_are_counted_as_dropped(bench: Bench) -> None:
    peer = bench.start("seq", "50", tail_lines=10)
    peer.ask("wait")
    peer.send(b'{"op": "lines", "since": 5}\n')
    assert [peer.read()["n"] for _ in range(10)] == list(range(41, 51))
    assert peer.read() == {"ok": True, "next": 50, "dropped": 35}


def test_a_request_without_end_closes_its_own_connection_only(bench: Bench) -> None:
    peer = bench.start("sleep", "1000")
    endless = bench.peer()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(100):
            endless.send(b"x" * 100_000)
    assert peer.ask("status")["ok"]


def test_many_connections_come_and_go(bench: Bench) -> None:
    peer = bench.start("sleep", "1000")
    for _ in range(3):
        peers = [bench.peer() for _ in range(100)]
        for other in peers:
            other.send(b'{"op": "wait"}\n')
        for other in peers:
            other.close()
        peer.ask("status")  # three hundred at once would be more than a holder takes
    pid = peer.ask("status")["status"]["holder_pid"]
    others = [bench.peer() for _ in range(5)]
    assert all(other.ask("status")["ok"] for other in others)
    for other in others:
        other.close()
    peer.ask("status")
    descriptors = [str(f.readlink()) for f in Path(f"/proc/{pid}/fd").iterdir()]
    assert sum(name.startswith("socket:") for name in descriptors) < 20


def test_too_many_connections_are_closed_and_the_others_served(bench: Bench) -> None:
    peer = bench.start("sleep", "1000")
    peer.ask("status")
    peers = [bench.peer() for _ in range(300)]
    assert peers[-1].is_closed()
    assert peer.ask("status")["ok"] and peers[100].ask("status")["ok"]
    for other in peers:
        other.close()
    peer.ask("status")
    assert bench.peer().ask("status")["ok"]


def test_release_answers_removes_the_socket_and_ends(bench: Bench) -> None:
    process = bench.launch(bench.spec("true"))
    assert process.stderr is not None and process.stderr.read() == ""
    peer = bench.peer()
    peer.ask("wait")
    assert peer.ask("release") == {"ok": True}
    assert process.wait(60) == 0 and peer.is_closed()
    assert not (bench.root / "h.sock").exists()
    assert json.loads((bench.root / "status.json").read_text())["exit"] == {"code": 0}


def test_stopping_what_has_ended_is_answered_at_once(bench: Bench) -> None:
    peer = bench.start("true")
    peer.ask("wait")
    assert peer.ask("stop")["status"]["exit"] == {"code": 0}
    assert peer.ask("kill")["ok"]


def change(spec: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    return {**spec, key: value}


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("version", 2, "version 2"),
        ("version", None, "version"),
        ("id", "../x", "../x"),
        ("argv", [], "argv"),
        ("argv", ["a\0b"], "NUL"),
        ("env", {"A=B": ""}, "A=B"),
        ("env", None, "env"),
        ("socket", "/" + "x" * 120, "107"),
        ("socket", "/no/such/folder/s", "socket"),
        ("dir", "/no/such/folder", "/no/such/folder"),
        ("stdio", "telepathy", "telepathy"),
        ("listen", [{"name": "a", "address": "nowhere"}], "nowhere"),
        ("listen", [{"name": "a", "address": "tcp:127.0.0.1:99999"}], "99999"),
        ("limits", {"cpus": [4095]}, "4095"),
        ("limits", {"cpus": []}, "cpus"),
        ("limits", {"memory_bytes": 0}, "memory_bytes"),
        ("stop", {"signal": 77}, "77"),
        ("log", {"max_bytes": 1}, "max_bytes"),
        ("restart", {"min_ms": 10, "max_ms": 1}, "min_ms"),
    ],
)
def test_a_wrong_specification_is_one_line_and_exit_status_2(
    bench: Bench, key: str, value: Any, named: str
) -> None:
    text = bench.complaint(change(bench.spec("true"), key, value))
    assert named in text and len(text.strip().splitlines()) == 1
    assert not (bench.root / "h.sock").exists()


@pytest.mark.parametrize("missing", ["version", "id", "dir", "socket", "argv", "env"])
def test_a_missing_field_is_named(bench: Bench, missing: str) -> None:
    spec = bench.spec("true")
    del spec[missing]
    assert missing in bench.complaint(spec)


@pytest.mark.parametrize("text", ["", "{", "null", "[1]", '"spec"'])
def test_what_is_no_specification_is_refused(bench: Bench, text: str) -> None:
    assert "spec.json" in bench.complaint(text)


def test_unknown_fields_are_ignored(bench: Bench) -> None:
    peer = bench.start("true", later={"more": 1}, limits={"later": True})
    assert peer.ask("wait")["status"]["exit"] == {"code": 0}


def test_a_second_holder_of_one_id_is_refused(bench: Bench) -> None:
    peer = bench.start("sleep", "1000")
    assert "another holder" in bench.complaint(bench.spec("true"))
    assert peer.ask("status")["status"]["state"] == "running"


def test_a_leftover_socket_is_taken_over(bench: Bench) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(bench.root / "h.sock"))
    assert bench.start("true").ask("wait")["ok"]


def test_a_foreign_file_in_place_of_the_socket_is_respected(bench: Bench) -> None:
    (bench.root / "h.sock").write_text("precious")
    assert "not a socket" in bench.complaint(bench.spec("true"))
    assert (bench.root / "h.sock").read_text() == "precious"


def test_without_a_specification_there_is_usage() -> None:
    done = subprocess.run([find_program()], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "usage" in done.stderr
    done = subprocess.run(
        [find_program(), "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "spec 1" in done.stdout
