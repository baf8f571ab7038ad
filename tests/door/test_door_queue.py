"""The stage queue from outside: order, refusals, deadlines, cancellation, starts."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest
from door_bench import Bench, Door, replica, stage
from door_origin import LAST, OK, SSE_HEAD, Origin, token
from door_wire import Message, Wire, dial, request_bytes, wait_until


class Gated:
    """Answers each request only when the test says so."""

    def __init__(self) -> None:
        self.waiting: dict[str, Wire] = {}
        self.order: list[str] = []
        self.left: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, request: Message, wire: Wire) -> object:
        with self._lock:
            self.order.append(request.target)
            self.waiting[request.target] = wire
        wire.sock.settimeout(0.05)
        while request.target in self.waiting:
            try:
                if wire.sock.recv(1, socket.MSG_PEEK) == b"":
                    self.left.append(request.target)
                    return False
            except TimeoutError:
                continue
            except OSError:
                self.left.append(request.target)
                return False
        wire.sock.settimeout(600)
        return True

    def release(self, target: str) -> None:
        wait_until(lambda: target in self.waiting, f"{target} reached the origin")
        self.waiting[target].send(OK)
        del self.waiting[target]


@pytest.fixture
def gated(bench: Bench) -> Iterator[tuple[Door, Gated, Origin]]:
    gate = Gated()
    origin = bench.origin(gate)
    table = stage(replica(origin, 1), default_service_ms=10, max_queue=3, max_wait_ms=60_000)
    yield bench.door({"chat": table}), gate, origin
    gate.waiting.clear()


def fill(door: Door, gate: Gated, target: str = "/first") -> Wire:
    wire = door.ask(target)
    wait_until(lambda: target in gate.waiting, "the slot is taken")
    return wire


def assert_refused(answer: Message, status: int) -> None:
    """What every refusal must carry."""
    assert answer.status == status, answer
    error = json.loads(answer.body)["error"]
    assert error["code"] == status and error["message"]
    assert 1 <= int(answer.get("retry-after") or 0) <= 60
    assert 1 <= int(answer.get("retry-after-ms") or 0) <= 60_000


def test_requests_are_served_in_the_order_they_came(gated: tuple[Door, Gated, Origin]) -> None:
    door, gate, _ = gated
    wires = [fill(door, gate)]
    for number in range(3):
        wires.append(door.ask(f"/{number}"))
        door.wait_for_state(queued=number + 1)
    for target in ["/first", "/0", "/1", "/2"]:
        gate.release(target)
    assert [wire.response().status for wire in wires] == [200] * 4
    assert gate.order == ["/first", "/0", "/1", "/2"]


def test_a_queued_answer_tells_its_wait(gated: tuple[Door, Gated, Origin]) -> None:
    door, gate, _ = gated
    first, second = fill(door, gate), door.ask("/second")
    door.wait_for_state(queued=1)
    gate.release("/first")
    gate.release("/second")
    assert first.response().status == 200
    answer = second.response()
    assert int(answer.get("x-preroll-queue-ms") or -1) >= 0
    assert float(answer.get("x-preroll-expected-wait") or -1) >= 0
    assert answer.get("x-preroll-replica")


def test_priority_goes_first(gated: tuple[Door, Gated, Origin]) -> None:
    door, gate, _ = gated
    wires = [fill(door, gate), door.ask("/low")]
    door.wait_for_state(queued=1)
    wires.append(door.ask("/high", fields=[("x-preroll-priority", "5")]))
    door.wait_for_state(queued=2)
    for target in ["/first", "/high", "/low"]:
        gate.release(target)
    assert [wire.response().status for wire in wires] == [200] * 3
    assert gate.order == ["/first", "/high", "/low"]


def test_a_call_for_a_held_slot_goes_first_on_the_internal_listener_only(
    gated: tuple[Door, Gated, Origin],
) -> None:
    door, gate, _ = gated
    parent = door.ask("/first", fields=[("x-request-id", "parent-1")])
    wait_until(lambda: "/first" in gate.waiting, "the slot is taken")
    held = [("x-preroll-parent", "parent-1")]
    wires = [parent, door.ask("/new")]
    door.wait_for_state(queued=1)
    wires.append(door.ask("/liar", fields=held))
    door.wait_for_state(queued=2)
    child = dial(door.internal_path)
    door.wires.append(child)
    child.send(request_bytes("GET", "/child", held))
    door.wait_for_state(queued=3)
    for target in ["/first", "/child", "/new", "/liar"]:
        gate.release(target)
    assert [wire.response().status for wire in [*wires, child]] == [200] * 4
    assert gate.order == ["/first", "/child", "/new", "/liar"]


def test_a_full_queue_refuses_at_once_and_nothing_reaches_the_replica(
    gated: tuple[Door, Gated, Origin],
) -> None:
    door, gate, origin = gated
    wires = [fill(door, gate)]
    for number in range(3):
        wires.append(door.ask(f"/{number}"))
        door.wait_for_state(queued=number + 1)
    told = []
    for _ in range(10):
        answer = door.get("/refused")
        assert_refused(answer, 429)
        assert float(answer.get("x-preroll-expected-wait") or -1) > 0
        assert answer.get("x-should-retry") == "true"
        told.append(int(answer.get("retry-after-ms") or 0))
    assert told[-1] > told[0], "retries are spread"
    for target in ["/first", "/0", "/1", "/2"]:
        gate.release(target)
    assert [wire.response().status for wire in wires] == [200] * 4
    assert all(request.target != "/refused" for request in origin.requests)


def test_a_wait_beyond_the_bound_is_refused_at_once(bench: Bench) -> None:
    gate = Gated()
    table = stage(replica(bench.origin(gate), 1), default_service_ms=5000, max_wait_ms=1000)
    door = bench.door({"chat": table})
    fill(door, gate)
    answer = door.get("/x")
    assert_refused(answer, 429)
    assert 3.0 < float(answer.get("x-preroll-expected-wait") or 0) <= 5.0
    gate.waiting.clear()


def test_a_deadline_that_passes_in_the_queue_is_504_and_never_runs(
    gated: tuple[Door, Gated, Origin],
) -> None:
    door, gate, _ = gated
    first = fill(door, gate)
    for name, value in [("x-preroll-deadline-ms", "300"), ("x-request-timeout", "0.3")]:
        answer = door.get("/late", fields=[(name, value)])
        assert answer.status == 504
        assert answer.get("x-should-retry") == "false"
    door.wait_for_state(queued=0)
    gate.release("/first")
    assert first.response().status == 200
    last = door.ask("/last")
    gate.release("/last")
    assert last.response().status == 200
    assert "/late" not in gate.order


def test_an_explicit_deadline_bounds_the_whole(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> object:
        wire.send(SSE_HEAD + token("a"))
        return origin.until_gone(wire)

    origin = bench.origin(answer)
    door = bench.door({"chat": stage(replica(origin))})
    wire = door.ask("/x", fields=[("x-preroll-deadline-ms", "400")])
    answered = wire.body(wire.head())
    assert b"event: error" in answered.body and not answered.is_whole
    wait_until(lambda: origin.gone == 1, "the replica is told")


def test_a_stream_has_no_total_deadline_of_its_own(bench: Bench) -> None:
    wires: list[Wire] = []

    def answer(_request: Message, wire: Wire) -> None:
        wires.append(wire)
        wire.send(SSE_HEAD + token("a"))
        wire.rest()

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    client = door.ask("/x", fields=[("x-request-timeout", "0.3")])
    client.head()
    chunks = client.chunks()
    next(chunks)
    # The time-out was for the first byte; well past it the stream still lives.
    assert not threading.Event().wait(0.8)
    wires[0].send(token("b") + LAST)
    assert b'"b"' in next(chunks)
    assert next(chunks, None) is None


def test_a_client_that_leaves_the_queue_is_gone(gated: tuple[Door, Gated, Origin]) -> None:
    door, gate, _ = gated
    first, leaves, stays = fill(door, gate), door.ask("/leaves"), None
    door.wait_for_state(queued=1)
    stays = door.ask("/stays")
    door.wait_for_state(queued=2)
    leaves.close()
    door.wait_for_state(queued=1)
    gate.release("/first")
    gate.release("/stays")
    assert [first.response().status, stays.response().status] == [200, 200]
    assert gate.order == ["/first", "/stays"]


@pytest.mark.parametrize("is_streaming", [False, True], ids=["prefill", "stream"])
def test_a_client_that_leaves_frees_the_replica_and_the_slot(
    bench: Bench, is_streaming: bool
) -> None:
    def answer(_request: Message, wire: Wire) -> object:
        if is_streaming:
            wire.send(SSE_HEAD + token("a"))
        return origin.until_gone(wire)

    origin = bench.origin(answer)
    door = bench.door({"chat": stage(replica(origin, 2))})
    for count in range(1, 6):
        wire = door.chat(stream=True)
        origin.wait_for_requests(count)
        if is_streaming:
            wire.head()
            next(wire.chunks())
        wire.close()
        wait_until(lambda n=count: origin.gone == n, "the replica is told")  # type: ignore[misc]
        door.wait_for_state(in_flight=0)


def test_a_client_that_closes_its_half_has_left(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> object:
        return origin.until_gone(wire)

    origin = bench.origin(answer)
    door = bench.door({"chat": stage(replica(origin))})
    wire = door.chat()
    origin.wait_for_requests(1)
    wire.sock.shutdown(1)
    wait_until(lambda: origin.gone == 1, "the replica is told")
    door.wait_for_state(in_flight=0)


def test_nothing_to_serve_and_nothing_to_start_is_503(bench: Bench) -> None:
    door = bench.door({"chat": stage()})
    assert_refused(door.get("/x"), 503)
    assert door.get("/readyz").status == 503
    assert door.get("/readyz/chat").status == 503
    assert door.get("/healthz").status == 200


def test_the_kv_budget_admits_by_tokens(bench: Bench) -> None:
    gate = Gated()
    table = stage(replica(bench.origin(gate), 8), models=("m",), kv_tokens=1000)
    door = bench.door({"chat": {**table, "max_wait_ms": 60_000}})
    kind = [("Content-Type", "application/json")]

    def ask(target: str, max_tokens: int) -> Wire:
        body = json.dumps({"model": "m", "messages": [], "max_tokens": max_tokens})
        return door.ask(target, body, kind)

    wires = [ask("/first", 600)]
    wait_until(lambda: "/first" in gate.waiting, "the first runs")
    wires.append(ask("/second", 600))
    door.wait_for_state(queued=1, in_flight=1)
    gate.release("/first")
    wait_until(lambda: "/second" in gate.waiting, "the second runs")
    wires.append(ask("/small", 100))
    gate.release("/small")
    gate.release("/second")
    assert [wire.response().status for wire in wires] == [200] * 3


def test_a_request_is_held_for_a_start_and_the_start_is_demanded(bench: Bench) -> None:
    start = {"expected_ms": 1500, "started_ns": None}
    door = bench.door({"chat": stage(start=start)})
    events = door.follow_events()
    wire = door.chat()
    wait_until(lambda: any(e["kind"] == "demand" for e in events), "a demand event")
    assert next(e for e in events if e["kind"] == "demand")["stage"] == "chat"
    assert door.state()["queued"] == 1
    door.put({"chat": stage(replica(bench.origin()))})
    answer = wire.response()
    assert answer.status == 200
    assert float(answer.get("x-preroll-expected-wait") or 0) == pytest.approx(1.5, abs=0.01)
    assert door.get("/readyz/chat").status == 200


def test_a_start_that_takes_too_long_is_503_with_its_time(bench: Bench) -> None:
    start = {"expected_ms": 90_000, "started_ns": None}
    door = bench.door({"chat": stage(start=start)})
    events = door.follow_events()
    answer = door.get("/x", fields=[("x-stainless-timeout", "5")])
    assert_refused(answer, 503)
    assert float(answer.get("x-preroll-expected-wait") or 0) == pytest.approx(90, abs=0.1)
    wait_until(lambda: any(e["kind"] == "demand" for e in events), "it is still demanded")


def test_a_start_that_fails_ends_the_hold(bench: Bench) -> None:
    door = bench.door({"chat": stage(start={"expected_ms": 1500, "started_ns": None})})
    wire = door.chat()
    door.wait_for_state(queued=1)
    door.put({"chat": stage()})
    assert_refused(wire.response(), 503)


def test_tables_change_under_load_without_losing_anyone(bench: Bench) -> None:
    one, two = bench.origin(), bench.origin()
    tables = [stage(replica(one, 2, id="a")), stage(replica(two, 1, id="b"))]
    both = stage(replica(one, 1, id="a"), replica(two, 3, id="b"), max_wait_ms=30_000)
    door = bench.door({"chat": both})
    statuses: list[int] = []
    is_over = threading.Event()

    def client() -> None:
        while not is_over.is_set():
            statuses.append(door.get("/x", b"{}").status)

    clients = [threading.Thread(target=client) for _ in range(6)]
    for thread in clients:
        thread.start()
    for round_ in range(15):
        door.put({"chat": {**(tables[round_ % 2] if round_ % 3 else both), "max_wait_ms": 30_000}})
        seen = len(statuses)
        wait_until(lambda n=seen: len(statuses) > n + 5, "traffic flows")  # type: ignore[misc]
    is_over.set()
    for thread in clients:
        thread.join()
    assert set(statuses) == {200}
    door.wait_for_state(in_flight=0, queued=0)


def test_old_tables_are_refused_and_wrong_ones_change_nothing(bench: Bench) -> None:
    origin = bench.origin()
    door = bench.door({"chat": stage(replica(origin))})
    door.put({"chat": stage(replica(origin))})
    old = json.dumps({"version": 1, "stages": {}}).encode()
    assert door.admin("PUT", "/tables", old).status == 409
    wrong = {"version": 9, "stages": {"chat": {"replicas": [{"id": "x", "address": "http://x"}]}}}
    answer = door.admin("PUT", "/tables", json.dumps(wrong).encode())
    assert answer.status == 400
    assert b"stages.chat.replicas[0].address" in answer.body
    assert json.loads(door.admin("GET", "/healthz").body)["tables_version"] == 2
    assert door.get("/x").status == 200


def test_an_engines_own_refusal_passes_with_a_retry_after(bench: Bench) -> None:
    def answer(request: Message, wire: Wire) -> None:
        status = request.target[1:]
        wire.send(f"HTTP/1.1 {status} No\r\nContent-Length: 4\r\n\r\nbusy")

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    for status in [429, 503]:
        answered = door.get(f"/{status}")
        assert (answered.status, answered.body) == (status, b"busy")
        assert 1 <= int(answered.get("retry-after") or 0) <= 60
    # Neither they nor clients' errors count as faults of the replica.
    for _ in range(20):
        assert door.get("/400").status == 400
        assert door.get("/503").status == 503
    assert door.state()["replicas"].popitem()[1]["ejected"] is False
