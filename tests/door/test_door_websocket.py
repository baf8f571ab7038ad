"""WebSocket sessions: relayed to any stage, apart from slots, ended by 1012 on a drain."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import struct

from door_bench import Bench, Door, replica, stage
from door_origin import OK
from door_wire import Message, Wire, request_bytes, wait_until

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def accept_key(key: str) -> str:
    return base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()


def frame(opcode: int, data: bytes, *, mask: bytes | None = None, is_last: bool = True) -> bytes:
    first = opcode | (0x80 if is_last else 0)
    bit = 0x80 if mask else 0
    if len(data) < 126:
        head = bytes([first, bit | len(data)])
    elif len(data) < 1 << 16:
        head = bytes([first, bit | 126]) + struct.pack(">H", len(data))
    else:
        head = bytes([first, bit | 127]) + struct.pack(">Q", len(data))
    if mask:
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
    return head + (mask or b"") + data


def read_frame(wire: Wire) -> tuple[int, bytes]:
    first, second = wire.exactly(2)
    length = second & 0x7F
    if length == 126:
        (length,) = struct.unpack(">H", wire.exactly(2))
    elif length == 127:
        (length,) = struct.unpack(">Q", wire.exactly(8))
    mask = wire.exactly(4) if second & 0x80 else None
    data = wire.exactly(length)
    if mask:
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
    return first & 0x0F, data


def websocket(request: Message, wire: Wire) -> object:
    """Echoes messages until a close frame or the end."""
    key = request.get("sec-websocket-key")
    if key is None:
        wire.send(OK)
        return True
    wire.send(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n"
    )
    while True:
        opcode, data = read_frame(wire)
        wire.send(frame(opcode, data))
        if opcode == CLOSE:
            return False


def open_socket(door: Door, target: str = "/v1/realtime?model=m") -> tuple[Wire, Message]:
    key = base64.b64encode(os.urandom(16)).decode()
    fields = [("Upgrade", "websocket"), ("Connection", "keep-alive, Upgrade")]
    fields += [("Sec-WebSocket-Key", key), ("Sec-WebSocket-Version", "13")]
    wire = door.connect()
    wire.send(request_bytes("GET", target, fields))
    head = wire.head()
    if head.status == 101:
        assert head.get("sec-websocket-accept") == accept_key(key)
    return wire, head


MASK = b"\x01\x02\x03\x04"


def test_messages_pass_both_ways_unchanged(bench: Bench) -> None:
    door = bench.door({"voice": stage(replica(bench.origin(websocket)), models=("m",))})
    wire, head = open_socket(door)
    assert head.status == 101
    for size in [0, 1, 125, 126, 65535, 65536, 300_000]:
        data = os.urandom(size)
        wire.send(frame(BINARY, data, mask=MASK))
        assert read_frame(wire) == (BINARY, data)
    wire.send(frame(CLOSE, struct.pack(">H", 1000), mask=MASK))
    assert read_frame(wire) == (CLOSE, struct.pack(">H", 1000))
    assert wire.rest() == b""
    door.wait_for_state("voice", sessions=0)


def test_sessions_take_no_slot_and_are_bounded(bench: Bench) -> None:
    table = stage(replica(bench.origin(websocket), 1), models=("m",), max_sessions=3)
    door = bench.door({"voice": table})
    open_ones = [open_socket(door) for _ in range(3)]
    assert [head.status for _, head in open_ones] == [101] * 3
    _, refused = open_socket(door)
    assert refused.status == 429
    assert 1 <= int(refused.get("retry-after") or 0) <= 60
    assert door.get("/v1/other").status == 200, "the slot is free"
    state = door.state("voice")
    assert (state["sessions"], state["in_flight"]) == (3, 0)
    assert (state["sessions_opened_total"], state["sessions_refused_total"]) == (3, 1)
    open_ones[0][0].close()
    door.wait_for_state("voice", sessions=2)
    assert open_socket(door)[1].status == 101
    metrics = door.admin("GET", "/metrics").body.decode()
    for line in [
        'preroll_sessions{stage="voice",model_name="m"} 3',
        'preroll_session_ends_total{stage="voice",kind="complete"} 1',
        'preroll_session_duration_seconds_count{stage="voice",model_name="m"} 1',
        'preroll_refusals_total{stage="voice",kind="overloaded"} 1',
        'preroll_request_duration_seconds_count{stage="voice",model_name="m"} 1',
    ]:
        assert line in metrics.splitlines(), f"{line}\n{metrics}"


def test_the_replica_learns_of_a_client_that_leaves(bench: Bench) -> None:
    origin = bench.origin(websocket)
    door = bench.door({"voice": stage(replica(origin), models=("m",))})
    wire, _ = open_socket(door)
    wire.send(frame(TEXT, b"half a message", mask=MASK)[:5])
    wire.close()
    wait_until(lambda: origin.open == 0, "the replica's connection is closed")
    door.wait_for_state("voice", sessions=0)


def test_a_session_whose_replica_dies_is_ended(bench: Bench) -> None:
    origin = bench.origin(websocket)
    door = bench.door({"voice": stage(replica(origin), models=("m",))})
    wire, _ = open_socket(door)
    wire.send(frame(TEXT, b"x", mask=MASK))
    assert read_frame(wire) == (TEXT, b"x")
    origin.stop()
    got = wire.rest()
    assert got[:1] in (b"", bytes([0x80 | CLOSE]))
    door.wait_for_state("voice", sessions=0)


def test_a_replica_that_declines_is_heard(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno")

    door = bench.door({"voice": stage(replica(bench.origin(answer)), models=("m",))})
    wire, head = open_socket(door)
    assert wire.body(head).body == b"no"
    assert head.status == 426
    door.wait_for_state("voice", sessions=0)


def test_without_a_replica_it_is_503_and_a_start_is_demanded(bench: Bench) -> None:
    start = {"expected_ms": 700, "started_ns": None}
    door = bench.door({"voice": stage(models=("m",), start=start)})
    events = door.follow_events()
    _, head = open_socket(door)
    assert head.status == 503
    assert float(head.get("x-preroll-expected-wait") or 0) > 0.5
    wait_until(lambda: any(e["kind"] == "demand" for e in events), "a demand event")


def test_a_drain_closes_with_1012_at_a_frame_boundary(bench: Bench) -> None:
    door = bench.door({"voice": stage(replica(bench.origin(websocket)), models=("m",))})
    wire, _ = open_socket(door)
    data = os.urandom(200_000)
    wire.send(frame(BINARY, data, mask=MASK))
    assert door.process is not None
    door.process.send_signal(signal.SIGTERM)
    frames = [read_frame(wire)]
    while frames[-1][0] != CLOSE:
        frames.append(read_frame(wire))
    assert frames[0] == (BINARY, data)
    (code,) = struct.unpack(">H", frames[-1][1][:2])
    assert code == 1012
    wire.send(frame(CLOSE, struct.pack(">H", 1012), mask=MASK))
    wire.rest()
    assert door.process.wait(20) == 0
