"""Ending and upgrading: readiness first, nothing refused, nothing that can finish is cut."""

from __future__ import annotations

import json
import signal
import threading
import time

from door_bench import Bench, Door, replica, stage
from door_origin import DONE, LAST, SSE_HEAD, token
from door_wire import ConnectionEnded, Message, Wire, wait_until


def test_sigterm_fails_readiness_keeps_accepting_and_finishes_streams(bench: Bench) -> None:
    wires: list[Wire] = []

    def answer(request: Message, wire: Wire) -> None:
        if request.target == "/quick":
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            return
        wires.append(wire)
        wire.send(SSE_HEAD + token("a"))
        wait_until(lambda: wire not in wires, "the test lets the stream end", 60)
        wire.send(token("b") + DONE + LAST)

    limits = {"drain_accept_ms": 1500}
    door = bench.door({"chat": stage(replica(bench.origin(answer)))}, limits=limits)
    client = door.ask("/stream")
    head = client.head()
    chunks = client.chunks()
    next(chunks)
    idle = door.connect()
    assert door.process is not None
    door.process.send_signal(signal.SIGTERM)
    wait_until(lambda: door.get("/readyz").status == 503, "readiness fails")
    assert door.get("/quick").status == 200, "it still accepts"
    assert json.loads(door.admin("GET", "/healthz").body)["draining"] is True
    wait_until(idle.is_closed, "idle connections are closed")
    assert door.process.poll() is None, "a stream is still open"
    wires.clear()
    assert b"".join(chunks).endswith(b"data: [DONE]\n\n")
    assert head.status == 200
    assert door.process.wait(20) == 0


def test_a_posted_drain_is_the_same(bench: Bench) -> None:
    limits = {"drain_accept_ms": 50}
    door = bench.door({"chat": stage(replica(bench.origin()))}, limits=limits)
    assert door.admin("POST", "/drain").status in (200, 202)
    assert door.process is not None
    assert door.process.wait(20) == 0


def successor(bench: Bench, old: Door) -> Door:
    """A second door on the same listening socket, as the holder's upgrade starts it."""
    door = Door(bench.root / "second")
    bench.doors.append(door)
    door.write_tables(old.tables["stages"], limits=old.tables.get("limits", {}))
    door.port = old.port
    door.start(old.public)
    return door


def test_an_upgrade_refuses_nothing_and_cuts_nothing(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        wire.send(SSE_HEAD)
        for number in range(5):
            wire.send(token(str(number)))
            time.sleep(0.01)
        wire.send(DONE + LAST)

    limits = {"drain_accept_ms": 100}
    table = stage(replica(bench.origin(answer), 64), max_wait_ms=30_000)
    old = bench.door({"chat": table}, limits=limits)
    results: list[str] = []
    is_over = threading.Event()

    def client() -> None:
        while not is_over.is_set():
            try:
                answered = old.chat(stream=True).response()
                is_good = answered.is_whole and answered.body.endswith(b"[DONE]\n\n")
                results.append("ok" if answered.status == 200 and is_good else str(answered))
            except (ConnectionEnded, OSError) as error:
                results.append(repr(error))

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    wait_until(lambda: len(results) > 20, "traffic flows")
    new = successor(bench, old)
    assert old.process is not None
    old.process.send_signal(signal.SIGTERM)
    assert old.process.wait(30) == 0
    seen = len(results)
    wait_until(lambda: len(results) > seen + 20, "traffic flows on")
    is_over.set()
    for thread in clients:
        thread.join()
    assert set(results) == {"ok"}
    assert new.state()["finished_total"] > 0


def test_a_door_that_comes_back_serves_by_its_tables_file(bench: Bench) -> None:
    door = bench.door({"chat": stage(replica(bench.origin()))})
    assert door.get("/x").status == 200
    assert door.process is not None
    door.process.kill()
    door.process.wait(10)
    door.start()
    assert door.get("/x").status == 200
