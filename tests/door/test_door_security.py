"""Who may: keys, the admin listener's matrix, and what listens at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
from pathlib import Path

import pytest
from door_bench import Bench, Door, replica, stage
from door_wire import Message, dial, request_bytes

ADMIN = [
    ("GET", "/healthz"),
    ("GET", "/state"),
    ("GET", "/events"),
    ("GET", "/metrics"),
    ("GET", "/recent"),
    ("GET", "/why/x"),
    ("PUT", "/tables"),
    ("POST", "/drain"),
    ("GET", "/unknown"),
]


SECRET = "a-token-of-the-admin"


def keys(*secrets: str) -> list[dict[str, str]]:
    return [
        {"id": f"team-{i}", "sha256": hashlib.sha256(secret.encode()).hexdigest()}
        for i, secret in enumerate(secrets)
    ]


def test_keys_are_asked_for_on_everything_but_health(bench: Bench) -> None:
    origin = bench.origin()
    stages = {"chat": stage(replica(origin), models=("m",))}
    routes = [{"path": "/r/*", "stage": "chat"}]
    door = bench.door(stages, keys=keys("sk-one", "sk-two"), routes=routes)
    for target in ["/v1/chat/completions", "/v1/models", "/r/x", "/x", "/v1/realtime?model=m"]:
        for value in [None, "", "Bearer", "Bearer wrong", "Basic sk-one", "sk-one", "Bearer 1=1"]:
            fields = [] if value is None else [("Authorization", value)]
            answer = door.get(target, b"{}" if "chat" in target else None, fields)
            assert answer.status == 401, (target, value)
            assert "sk-" not in answer.body.decode()
    assert not origin.requests
    for target in ["/healthz", "/readyz", "/readyz/chat"]:
        assert door.get(target).status == 200
    for secret in ["sk-one", "sk-two"]:
        assert door.get("/r/x", fields=[("Authorization", f"Bearer {secret}")]).status == 200
    assert all(request.get("authorization") is None for request in origin.requests)


def test_a_refused_key_costs_no_body(bench: Bench) -> None:
    door = bench.door({"chat": stage(models=("m",))}, keys=keys("sk-one"))
    wire = door.connect()
    fields = [("Content-Type", "application/json"), ("Content-Length", "1000000")]
    wire.send(request_bytes("POST", "/v1/chat/completions", fields))
    assert wire.response().status == 401


def test_only_what_is_asked_for_listens(bench: Bench) -> None:
    door = bench.door({"chat": stage(replica(bench.origin()))})
    door.get("/x")
    inodes = set()
    for fd in Path(f"/proc/{door.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes.add(fd.readlink().name)
    listening = []
    for name in ["tcp", "tcp6"]:
        for line in Path(f"/proc/{door.pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                listening.append(fields[1])
    assert listening == [f"0100007F:{door.port:04X}"]
    for path in [door.admin_path, door.internal_path]:
        assert Path(path).parent.stat().st_mode & 0o077 == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def admin_tcp(bench: Bench, token: str | None) -> tuple[Door, int]:
    port = free_port()
    flags = ["--admin-tcp", f"127.0.0.1:{port}"]
    if token is not None:
        path = bench.root / "token"
        path.write_text(token + "\n")
        flags += ["--admin-token-file", str(path)]
    return bench.door({"chat": stage()}, *flags), port


def ask_admin(
    port: int, method: str, target: str, fields: list[tuple[str, str]], host: str | None
) -> Message:
    wire = dial(("127.0.0.1", port))
    try:
        wire.send(request_bytes(method, target, fields, b"{}" if method != "GET" else None, host))
        return wire.head()
    finally:
        wire.close()


@pytest.mark.parametrize(("method", "target"), ADMIN)
def test_every_admin_route_checks_host_and_origin(bench: Bench, method: str, target: str) -> None:
    door, port = admin_tcp(bench, None)
    good = f"localhost:{port}"
    for host in ["evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost@x"]:
        answer = ask_admin(port, method, target, [], host)
        assert answer.status in (400, 403), host
    for origin in ["http://evil.example", "null", "http://localhost:1", "file://"]:
        answer = ask_admin(port, method, target, [("Origin", origin)], good)
        assert answer.status == 403, origin
    assert json.loads(door.admin("GET", "/healthz").body)["draining"] is False
    if target != "/drain":
        assert ask_admin(port, method, target, [], good).status not in (401, 403)


@pytest.mark.parametrize(("method", "target"), ADMIN)
def test_every_admin_route_asks_for_the_token(bench: Bench, method: str, target: str) -> None:
    door, port = admin_tcp(bench, SECRET)
    host = f"127.0.0.1:{port}"
    wrong = ["", "Bearer", "Bearer wrong", SECRET, f"Basic {SECRET}", f"Bearer {SECRET}2"]
    for value in [None, *wrong]:
        fields = [] if value is None else [("Authorization", value)]
        assert ask_admin(port, method, target, fields, host).status == 401, value
    assert json.loads(door.admin("GET", "/healthz").body)["draining"] is False
    if target != "/drain":
        fields = [("Authorization", f"Bearer {SECRET}")]
        assert ask_admin(port, method, target, fields, host).status not in (401, 403)


@pytest.mark.parametrize(("method", "target"), ADMIN)
def test_no_admin_route_is_on_the_public_listener(bench: Bench, method: str, target: str) -> None:
    door = bench.door({"chat": stage(), "other": stage()})
    before = json.loads(door.admin("GET", "/healthz").body)
    tables = json.dumps({"version": 99, "stages": {}}).encode()
    answer = door.get(target, tables if method != "GET" else None, method=method)
    if target == "/healthz":
        assert b"tables_version" not in answer.body
    else:
        assert answer.status in (404, 405, 503), answer
    assert json.loads(door.admin("GET", "/healthz").body) == before


def test_the_admin_listener_refuses_what_it_does_not_know(bench: Bench) -> None:
    door = bench.door({"chat": stage()})
    assert door.admin("GET", "/nothing").status == 404
    assert door.admin("DELETE", "/tables").status == 405
    assert door.admin("GET", "/drain").status == 405
    assert door.admin("PUT", "/tables", b"not json").status == 400
    for path in ["/why/../../etc/passwd", "/why/%2e%2e", "/why/" + "x" * 3000]:
        assert door.admin("GET", path).status in (400, 404)
