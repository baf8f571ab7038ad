"""Request smuggling: whatever a client sends, no replica ever reads a request that nobody sent."""

from __future__ import annotations

import contextlib

import pytest
from door_bench import Bench, replica, stage
from door_origin import OK
from door_smuggling import POISON, READINGS, NaiveRelay, Recorder, both, payloads
from door_wire import ConnectionEnded, dial, wait_until

VICTIM = "/victim"
HEAD = b"HTTP/1.1 200 OK\r\n"


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


# What a relay believes and an origin does not, and a body that shows it.
CONTROLS = {
    "coding": ("length", "Content-Length: {all}\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    "length": ("coding", "Content-Length: 4\r\nTransfer-Encoding: chunked", "{size}\r\n"),
    "first": ("length", "Content-Length: 0\r\nContent-Length: {all}", ""),
}


@pytest.mark.parametrize("origin_believes", READINGS)
def test_the_positive_control_is_poisoned(bench: Bench, origin_believes: str) -> None:
    """A naive relay before the same origin: the payloads do bite."""
    recorder = Recorder(origin_believes, bench.root / "lenient.http")
    bench.origins.append(recorder)
    relay_believes, lines, prefix = CONTROLS[origin_believes]
    smuggled = f"GET {POISON} HTTP/1.1\r\nHost: d\r\nX: y\r\n\r\n"
    body = prefix.format(size=f"{len(smuggled):x}") + smuggled
    body += "\r\n0\r\n\r\n" if relay_believes == "coding" else ""
    relay = NaiveRelay(str(recorder.path), relay_believes)
    try:
        wire = dial(("127.0.0.1", relay.port))
        head = f"POST /first HTTP/1.1\r\nHost: d\r\n{lines.format(all=len(body))}\r\n\r\n"
        wire.send(head + body)
        assert wire.response().status == 200
        wait_until(lambda: any(POISON in line for line in recorder.starts()), "the poison")
        wire.close()
    finally:
        relay.close()


def assert_clean(recorder: Recorder) -> None:
    """Every request at the origin came through the door as a request of its own, with its id."""
    strange = [request for request in recorder.requests if POISON in request.start]
    assert all(request.get("x-request-id") for request in strange), strange
    # A smuggled head swallows the start of whatever follows it on that connection, id and all.
    swallowed = [r for r in recorder.requests if b" HTTP/1.1" in r.raw_head.partition(b"\n")[2]]
    assert not swallowed, swallowed
    starts = {line.split(" ")[1] for line in recorder.starts()}
    assert starts <= {"/first", VICTIM, POISON, "/a"}, starts


def attack_all(bench: Bench, believes: str, chosen: list[bytes]) -> None:
    recorder = Recorder(believes, bench.root / "lenient.http")
    bench.origins.append(recorder)
    door = bench.door({"any": stage(replica(recorder, 64), max_wait_ms=30_000)})
    for number, payload in enumerate(chosen):
        attack(door.port, payload)
        if number % 8 == 0:
            answer = door.get(VICTIM)
            assert (answer.status, answer.body) == (200, b"ok"), payload
    assert door.get(VICTIM).status == 200
    assert_clean(recorder)


@pytest.mark.parametrize("believes", READINGS)
def test_no_payload_desynchronises_door_and_replica(bench: Bench, believes: str) -> None:
    """Every ninth payload, others for each reading."""
    everything = [payload for kind in payloads().values() for payload in kind]
    assert len(everything) > 3400
    attack_all(bench, believes, everything[READINGS.index(believes) :: 9])


@pytest.mark.parametrize("believes", READINGS)
def test_what_connection_names_is_framed_all_the_same(bench: Bench, believes: str) -> None:
    attack_all(bench, believes, payloads()["named"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("believes", READINGS)
@pytest.mark.parametrize("kind", list(payloads()))
def test_no_payload_of_any_kind_does(bench: Bench, kind: str, believes: str) -> None:
    attack_all(bench, believes, payloads()[kind])


def test_content_length_with_transfer_encoding_is_always_refused(bench: Bench) -> None:
    origin = bench.origin()
    door = bench.door({"any": stage(replica(origin))})
    plain = (p for p in both() if b"\r\nTransfer-Encoding: chunked\r\n" in p)
    for payload in plain:
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
