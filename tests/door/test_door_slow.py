"""Clients that are slow, greedy or many: bounded in time and memory, and no harm to the others."""

from __future__ import annotations

import json
import time

from door_bench import Bench, Door, replica, stage
from door_origin import LAST, SSE_HEAD, chunk, plain, token
from door_wire import ConnectionEnded, Message, Wire, request_bytes, wait_until

KIND = [("Content-Type", "application/json")]


def echo(request: Message, wire: Wire) -> None:
    wire.send(plain(body=request.body[:10]))


def ended(wire: Wire) -> bool:
    return wire.is_closed()


def drip(door: Door, wire: Wire, data: bytes) -> bool:
    """Sends a byte now and then; True when the door has had enough."""
    for byte in data:
        if wire.is_closed() or wire.held:
            return True
        try:
            wire.send(bytes([byte]))
        except OSError:
            return True
        time.sleep(0.02)
        if door.get("/x", method="HEAD").status == 0:  # Others are served meanwhile.
            return False
    return False


def test_a_slow_head_is_ended_however_it_drips(bench: Bench) -> None:
    limits = {"head_timeout_ms": 500}
    door = bench.door({"any": stage(replica(bench.origin(echo)))}, limits=limits)
    wire = door.connect()
    assert drip(door, wire, b"GET /slow HTTP/1.1\r\nHost: d\r\nX: " + b"y" * 2000)
    assert b" 408 " in wire.rest()[:20]
    silent = door.connect()
    wait_until(lambda: ended(silent), "a silent connection is closed")


def test_a_slow_body_is_ended_and_its_slot_comes_free(bench: Bench) -> None:
    limits = {"body_timeout_ms": 500}
    stages = {"chat": stage(replica(bench.origin(echo), 4), models=("m",))}
    routes = [{"path": "/upload", "stage": "chat"}]
    door = bench.door(stages, limits=limits, routes=routes)
    for target in ["/v1/chat/completions", "/upload"]:
        wire = door.connect()
        head = request_bytes("POST", target, [*KIND, ("Content-Length", "5000")])
        wire.send(head)
        assert drip(door, wire, b'{"model": "m", ' + b" " * 2000)
        wire.close()
        door.wait_for_state(in_flight=0, queued=0)


def test_a_reader_that_does_not_read_is_held_back_and_ended(bench: Bench) -> None:
    sent = [0]

    def answer(_request: Message, wire: Wire) -> object:
        wire.send(SSE_HEAD + token("a"))
        block = chunk(b"data: " + b"x" * 65536 + b"\n\n")
        wire.sock.settimeout(60)
        while True:
            wire.send(block)
            sent[0] += len(block)

    origin = bench.origin(answer)
    table = stage(replica(origin), stream_idle_timeout_ms=1000)
    door = bench.door({"chat": table})
    before_kb = door.rss_kb()
    wire = door.chat(stream=True)
    wire.head()
    wait_until(lambda: sent[0] > 0, "it streams")
    door.wait_for_state(in_flight=0)
    assert door.rss_kb() - before_kb < 8 << 10
    wait_until(lambda: origin.open == 0, "the replica is told")


def test_many_idle_and_half_open_clients_cost_little_and_block_no_one(bench: Bench) -> None:
    door = bench.door({"any": stage(replica(bench.origin(echo)))})
    door.get("/x")
    before_kb = door.rss_kb()
    wires = [door.connect() for _ in range(400)]
    for number, wire in enumerate(wires):
        wire.send(b"GET /slow HTTP/1.1\r\nHost: d\r\nX: "[: number % 30])
    assert [door.get("/x").status for _ in range(50)] == [200] * 50
    held_kb = door.rss_kb() - before_kb
    # None of them has a whole head: no state of hyper's is held for it.
    assert held_kb < 400 * 10, f"{held_kb} KiB for 400 connections"


def test_connections_are_bounded(bench: Bench) -> None:
    limits = {"connections": 20}
    door = bench.door({"any": stage(replica(bench.origin(echo)))}, limits=limits)
    wires = [door.connect() for _ in range(60)]
    wait_until(lambda: sum(map(ended, wires)) >= 1 or door_is_full(door), "a bound")
    for wire in wires:
        wire.close()
    wait_until(lambda: answers(door), "it serves again")


def answers(door: Door) -> bool:
    try:
        return door.get("/x").status == 200
    except (ConnectionEnded, OSError):
        return False


def door_is_full(door: Door) -> bool:
    wire = door.connect()
    wire.sock.settimeout(0.3)
    try:
        wire.send(request_bytes("GET", "/x"))
        return bool(wire.response().status == 503)
    except (ConnectionEnded, OSError):
        return True
    finally:
        wire.close()


def test_bodies_are_bounded_each_and_together(bench: Bench) -> None:
    limits = {"body_bytes": 100_000, "body_budget_bytes": 150_000}
    origin = bench.origin(echo)
    stages = {"chat": stage(replica(origin), models=("m",)), "other": stage()}
    routes = [{"path": "/upload", "stage": "chat"}]
    door = bench.door(stages, limits=limits, routes=routes)
    small = json.dumps({"model": "m", "messages": "x" * 1000})
    large = json.dumps({"model": "m", "messages": "x" * 100_000})
    assert door.get("/v1/chat/completions", small, KIND).status == 200
    assert door.get("/v1/chat/completions", large, KIND).status == 413
    wire = door.connect()
    wire.send(request_bytes("POST", "/v1/chat/completions", [*KIND, ("Content-Length", "9" * 12)]))
    assert wire.response().status == 413, "before a byte of it was read"
    chunked = door.connect()
    fields = [*KIND, ("Transfer-Encoding", "chunked")]
    chunked.send(request_bytes("POST", "/v1/chat/completions", fields))
    chunked.send(chunk(b" " * 60_000) * 2)
    assert chunked.response().status == 413
    # Two halves of a budget: the third waits or is refused, and is served once they have gone.
    halves = []
    for _ in range(2):
        half = door.connect()
        fields = [*KIND, ("Content-Length", "90000")]
        half.send(request_bytes("POST", "/v1/chat/completions", fields) + b" " * 80_000)
        halves.append(half)
    assert door.get("/upload", b"x" * 90_000).status == 200, "streamed bodies need no budget"
    for half in halves:
        half.close()
    wait_until(
        lambda: door.get("/v1/chat/completions", small, KIND).status == 200, "the budget is free"
    )


def test_little_input_holds_little_memory_and_costs_little_cpu(bench: Bench) -> None:
    """10 KiB in: less than 1 MiB held."""
    origin = bench.origin(echo)
    stages = {"chat": stage(replica(origin), models=("m",)), "other": stage()}
    door = bench.door(stages, routes=[{"path": "/x", "stage": "chat"}])
    assert answers(door)
    shapes = [
        b"GET / HTTP/1.1\r\nHost: d\r\n" + b"a: b\r\n" * 1700,
        b"GET /" + b"%41" * 3300 + b" HTTP/1.1\r\nHost: d\r\n\r\n",
        request_bytes("POST", "/v1/chat/completions", KIND, b"[" * 10_000),
        request_bytes("POST", "/v1/chat/completions", KIND, b'{"a":' * 2000),
        request_bytes("POST", "/v1/chat/completions", KIND, b'{"' + b"\\u0061" * 1600),
        request_bytes("POST", "/v1/chat/completions", [*KIND, ("Content-Length", "9999999")]),
        request_bytes("POST", "/v1/x", [*KIND, ("Transfer-Encoding", "chunked")])
        + b"1;" + b"x" * 5000 + b"\r\na\r\n",
        request_bytes("POST", "/v1/x", [*KIND, ("Transfer-Encoding", "chunked")])
        + b"1\r\n \r\n" * 1500,
        request_bytes("GET", "/x") * 200,
        b"\r\n" * 5000,
    ]  # fmt: skip
    for shape in shapes:
        before_kb, before_s = door.rss_kb(), door.cpu_s()
        wires = [door.connect() for _ in range(10)]
        for wire in wires:
            wire.send(shape)
        assert answers(door)
        assert door.rss_kb() - before_kb < 10 << 10, shape[:60]
        assert door.cpu_s() - before_s < 1.0, shape[:60]
        for wire in wires:
            wire.close()


def test_an_endless_event_is_not_held(bench: Bench) -> None:
    def answer(request: Message, wire: Wire) -> None:
        if request.target == "/x":
            return echo(request, wire)
        wire.send(SSE_HEAD + token("a") + chunk(b"data: "))
        block = chunk(b"x" * 65536)
        for _ in range(800):
            wire.send(block)
        wire.send(chunk(b"\n\n") + LAST)
        return None

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    assert answers(door)
    before_kb = door.rss_kb()
    wire = door.chat(stream=True)
    total = 0
    wire.head()
    for part in wire.chunks():
        total += len(part)
    assert total > 50 << 20
    assert door.rss_kb() - before_kb < 8 << 10
