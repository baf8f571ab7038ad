"""Request smuggling: whatever a client sends, no replica ever reads a request that nobody sent."""

from __future__ import annotations

import contextlib

import pytest
from door_bench import Bench, replica, stage
from door_origin import OK, Origin
from door_smuggling import POISON, LenientWire, NaiveRelay, both, payloads
from door_wire import ConnectionEnded, dial, request_bytes

VICTIM = "/victim"
HEAD = b"HTTP/1.1 200 OK\r\n"


class Recorder(Origin):
    """Reads as forgivingly as servers have, and keeps every request that it believes it saw."""

    def _serve_one(self, wire) -> object:  # type: ignore[no-untyped-def]
        wire.__class__ = LenientWire
        request = wire.lenient_request()
        with self._lock:
            self.requests.append(request)
        wire.send(OK)
        return True

    def targets(self) -> list[str]:
        return [request.start for request in self.requests]


def attack(port: int, payload: bytes) -> list[int]:
    """Sends a payload and a victim's request behind it; the statuses that came back."""
    statuses = []
    wire = dial(("127.0.0.1", port))
    wire.sock.settimeout(0.1)
    try:
        wire.send(payload)
        with contextlib.suppress(ConnectionEnded, OSError, ValueError, IndexError, TimeoutError):
            while True:
                statuses.append(wire.response().status)
    except OSError:
        pass
    finally:
        wire.close()
    return statuses


def test_the_positive_control_is_poisoned(bench: Bench) -> None:
    """A naive relay before the same origin: the payloads do bite."""
    recorder = Recorder(path=bench.root / "lenient.http")
    bench.origins.append(recorder)
    relay = NaiveRelay(str(recorder.path))
    try:
        body = f"0\r\n\r\nGET {POISON} HTTP/1.1\r\nHost: d\r\nX: "
        lines = [("Content-Length", str(len(body))), ("Transfer-Encoding", "chunked")]
        wire = dial(("127.0.0.1", relay.port))
        wire.send(request_bytes("POST", "/first", lines) + body.encode())
        assert wire.response().status == 200
        wire.send(request_bytes("GET", VICTIM))
        wire.response()
        wire.close()
        assert any(POISON in line for line in recorder.targets()), recorder.targets()
    finally:
        relay.close()


@pytest.mark.parametrize("kind", list(payloads()))
def test_no_payload_desynchronises_door_and_replica(bench: Bench, kind: str) -> None:
    recorder = Recorder(path=bench.root / "lenient.http")
    bench.origins.append(recorder)
    door = bench.door({"any": stage(replica(recorder, 64), max_wait_ms=30_000)})
    for number, payload in enumerate(payloads()[kind]):
        attack(door.port, payload)
        if number % 8 == 0:
            answer = door.get(VICTIM)
            assert (answer.status, answer.body) == (200, b"ok"), payload
    assert door.get(VICTIM).status == 200
    strange = [
        request
        for request in recorder.requests
        if POISON in request.start or "GET /victim" in request.raw_head.decode("latin-1")[20:]
    ]
    # A pipelined second request that the client did send as such is no smuggling: it came through
    # the door as a request of its own, with the door's id on it.
    assert all(request.get("x-request-id") for request in strange), strange
    starts = {line.split(" ")[1] for line in recorder.targets()}
    assert starts <= {"/first", VICTIM, POISON, "/a"}, starts


def test_content_length_with_transfer_encoding_is_always_refused(bench: Bench) -> None:
    origin = bench.origin()
    door = bench.door({"any": stage(replica(origin))})
    for payload in both():
        if b"\r\nTransfer-Encoding: chunked\r\n" not in payload:
            continue
        statuses = attack(door.port, payload)
        assert len(statuses) == 1 and statuses[0] in (400, 501), payload
    assert not origin.requests


@pytest.mark.parametrize(
    "response",
    [
        HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\nok",
        HEAD + b"Content-Length: 2\r\n\r\nok" + HEAD + b"Content-Length: 6\r\n\r\npoison",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\npoison",
    ],
    ids=["both", "two-lengths", "too-much", "204-body"],
)
def test_a_replicas_surplus_is_no_other_clients_answer(bench: Bench, response: bytes) -> None:
    def answer(request, wire) -> None:  # type: ignore[no-untyped-def]
        wire.send(response if request.target == "/bad" else OK)

    door = bench.door({"any": stage(replica(bench.origin(answer)))})
    door.get("/bad", b"{}")
    for _ in range(5):
        answered = door.get("/good", b"{}")
        assert b"poison" not in answered.body
        assert answered.body == b"ok"
