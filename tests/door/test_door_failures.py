"""Replicas that fail: broken streams, raced connections, retries, ejection and recovery."""

from __future__ import annotations

import json
import threading

import pytest
from door_bench import Bench, replica, stage
from door_origin import DONE, LAST, OK, SSE_HEAD, chunk, ok, plain, token
from door_wire import Message, Wire, sse_events, wait_until


def assert_broken(answer: Message) -> None:
    """Exactly one terminal event, an error, and never a clean end."""
    assert not answer.is_whole, "ended as if nothing were wrong"
    events = sse_events(answer.body)
    errors = [data for kind, data in events if kind == "error"]
    assert len(errors) == 1 and events[-1][1] == errors[0]
    assert json.loads(errors[0])["error"]["message"]
    assert all(data != "[DONE]" for _, data in events)


@pytest.mark.parametrize(
    "cut",
    [
        token("a"),
        token("a") + chunk('data: {"choices":[{"delta":{"content":"half'),
        token("a") + chunk("data: {}\n"),
        token("a") + b"40\r\ndata: in a chunk",
        token("a") + b"zz\r\n",
        b"",
    ],
    ids=["between", "in-event", "in-blank-line", "in-chunk", "bad-chunk", "after-head"],
)
def test_a_broken_stream_ends_with_an_error_event(bench: Bench, cut: bytes) -> None:
    def answer(_request: Message, wire: Wire) -> bool:
        wire.send(SSE_HEAD + cut)
        return False

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    wire = door.chat(stream=True)
    answered = wire.body(wire.head())
    assert answered.status == 200
    assert_broken(answered)
    door.wait_for_state(in_flight=0)


def test_a_broken_body_with_a_length_is_cut_not_completed(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> bool:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        return False

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    answered = door.get("/x")
    assert (answered.body, answered.is_whole) == (b"half", False)


def test_a_whole_stream_has_one_end(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        wire.send(SSE_HEAD + token("a") + DONE + LAST)

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    answered = door.chat(stream=True).response()
    assert answered.is_whole
    assert [data for _, data in sse_events(answered.body)].count("[DONE]") == 1


def test_a_silent_stream_ends_at_its_idle_time_out(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> object:
        wire.send(SSE_HEAD + token("a"))
        return origin.until_gone(wire)

    origin = bench.origin(answer)
    door = bench.door({"chat": stage(replica(origin), stream_idle_timeout_ms=300)})
    wire = door.chat(stream=True)
    assert_broken(wire.body(wire.head()))
    wait_until(lambda: origin.gone == 1, "the replica is told")


@pytest.mark.parametrize("is_tcp", [True, False], ids=["tcp", "unix"])
def test_an_idle_connection_that_the_origin_closes_costs_no_request(
    bench: Bench, is_tcp: bool
) -> None:
    def answer(_request: Message, wire: Wire) -> bool:
        wire.send(OK)
        return False  # Closes right after, without Connection: close.

    origin = bench.origin(answer, is_tcp=is_tcp)
    door = bench.door({"chat": stage(replica(origin, keepalive_ms=60_000))})
    for _ in range(50):
        assert door.get("/x", b"{}").status == 200
        # The end has been sent: the next request must not go into it.
        wait_until(lambda: origin.open == 0, "the origin has closed")


def test_idle_connections_are_given_up_before_the_server_does(bench: Bench) -> None:
    origin = bench.origin(is_tcp=True)
    door = bench.door({"chat": stage(replica(origin, keepalive_ms=300))})
    assert door.get("/x").status == 200
    wait_until(lambda: origin.open == 0, "the idle connection is closed")


def test_idle_connections_that_the_server_closed_are_closed_without_a_request(
    bench: Bench,
) -> None:
    def answer(_request: Message, wire: Wire) -> bool:
        wire.send(OK)
        return False  # Closes right after, without Connection: close.

    door = bench.door({"chat": stage(replica(bench.origin(answer), keepalive_ms=60_000))})
    assert door.get("/x").status == 200

    def is_closed() -> bool:
        lines = door.admin("GET", "/metrics").body.decode().splitlines()
        counts = [line for line in lines if line.startswith("preroll_upstream_connections{")]
        return counts != [] and all(line.endswith(" 0") for line in counts)

    wait_until(is_closed, "the door has closed its side")


def test_connections_are_used_again(bench: Bench) -> None:
    origin = bench.origin(is_tcp=True)
    door = bench.door({"chat": stage(replica(origin, keepalive_ms=60_000))})
    assert [door.get("/x").status for _ in range(20)] == [200] * 20
    assert origin.open == 1


def test_a_request_that_never_ran_goes_to_another_replica(bench: Bench) -> None:
    alive, dead = bench.origin(), bench.origin()
    dead.stop()
    door = bench.door({"chat": stage(replica(alive), replica(dead, id="dead"))})
    events = door.follow_events()
    assert [door.get("/x", b"{}").status for _ in range(20)] == [200] * 20
    assert len(alive.requests) == 20
    wait_until(lambda: any(e["kind"] == "replica_down" for e in events), "replica_down")
    assert next(e for e in events if e["kind"] == "replica_down")["replica"] == "dead"


def test_a_written_post_that_meets_eof_is_502_and_is_not_repeated(bench: Bench) -> None:
    def answer(_request: Message, _wire: Wire) -> bool:
        return False

    one, two = bench.origin(answer), bench.origin(answer)
    door = bench.door({"chat": stage(replica(one), replica(two))})
    assert door.get("/x", b"{}").status == 502
    assert len(one.requests) + len(two.requests) == 1


def test_what_is_no_http_is_502(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> bool:
        wire.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        return False

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    answered = door.get("/x", b"{}")
    assert answered.status == 502
    json.loads(answered.body)


def test_when_all_replicas_die_it_is_503_with_retry_after_and_recovery_is_noticed(
    bench: Bench,
) -> None:
    origins = [bench.origin(), bench.origin()]
    door = bench.door({"chat": stage(*map(replica, origins), max_wait_ms=200)})
    assert door.get("/x").status == 200
    events = door.follow_events()
    for origin in origins:
        origin.stop()
    for _ in range(20):
        answer = door.get("/x", b"{}")
        assert answer.status in (502, 503)
        if answer.status == 503:
            assert 1 <= int(answer.get("retry-after") or 0) <= 60
    assert answer.status == 503
    for origin in origins:
        origin.start()
    wait_until(lambda: door.get("/x", b"{}").status == 200, "it serves again")
    wait_until(lambda: any(e["kind"] == "replica_up" for e in events), "replica_up")


def test_one_hung_replica_does_not_block_the_other_stage(bench: Bench) -> None:
    def hang(_request: Message, wire: Wire) -> object:
        return hung.until_gone(wire)

    hung, fine = bench.origin(hang), bench.origin()
    routes = [{"path": "/hung", "stage": "hung"}, {"path": "/fine", "stage": "fine"}]
    stages = {"hung": stage(replica(hung, 4)), "fine": stage(replica(fine))}
    door = bench.door(stages, routes=routes)
    wires = [door.ask("/hung") for _ in range(4)]
    hung.wait_for_requests(4)
    assert [door.get("/fine").status for _ in range(20)] == [200] * 20
    for wire in wires:
        wire.close()
    door.wait_for_state("hung", in_flight=0)


def test_aborts_leak_no_slot_and_no_connection(bench: Bench) -> None:
    def answer(request: Message, wire: Wire) -> object:
        if request.target == "/slow":
            return origin.until_gone(wire)
        return ok(request, wire)

    origin = bench.origin(answer)
    door = bench.door({"chat": stage(replica(origin, 4), max_wait_ms=30_000)})
    for _ in range(25):
        wires = [door.ask("/slow") for _ in range(8)]
        for wire in wires:
            wire.close()
    door.wait_for_state(in_flight=0, queued=0)
    assert [door.get("/x").status for _ in range(8)] == [200] * 8
    wait_until(lambda: origin.open <= 4, "aborted connections are closed")


def test_a_thousand_streams_are_served(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        wire.send(SSE_HEAD + token("a") + token("b") + DONE + LAST)

    table = stage(replica(bench.origin(answer), 1000), max_wait_ms=60_000)
    door = bench.door({"chat": table})
    results: list[bool] = []

    def client() -> None:
        results.extend(door.chat(stream=True).response().is_whole for _ in range(25))

    threads = [threading.Thread(target=client) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 1000


def test_error_answers_pass_as_they_are(bench: Bench) -> None:
    def answer(request: Message, wire: Wire) -> None:
        wire.send(plain(f"{request.target[1:]} X", b'{"error": "mine"}'))

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    for status in [400, 401, 404, 422, 500, 501]:
        answered = door.get(f"/{status}")
        assert (answered.status, answered.body) == (status, b'{"error": "mine"}')


def test_one_clients_errors_close_the_replica_to_nobody(bench: Bench) -> None:
    def answer(request: Message, wire: Wire) -> None:
        status = request.target[1:]
        wire.send(plain("200 OK" if status == "good" else f"{status} X"))

    door = bench.door({"chat": stage(replica(bench.origin(answer), id="r"))})
    for status in [400, 401, 404, 413, 422, 429, 500, 503] * 10:
        assert door.get(f"/{status}").status == status
        assert door.get("/good").status == 200
    state = door.state()
    assert not state["replicas"]["r"]["ejected"] and state["in_flight"] == 0
