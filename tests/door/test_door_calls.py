"""Calls of one stage to another: by name, on the internal listener, with what is left of time."""

from __future__ import annotations

import signal
import threading
import time

from door_bench import Bench, Door, replica, stage
from door_origin import LAST, OK, SSE_HEAD, token
from door_wire import Fields, Message, Wire, dial, request_bytes, wait_until

CODEC = [("x-preroll-stage", "codec")]


def call(door: Door, target: str, fields: Fields) -> Message:
    wire = dial(door.internal_path)
    door.wires.append(wire)
    wire.send(request_bytes("GET", target, fields))
    return wire.response()


def test_a_call_names_its_stage_and_only_the_internal_listener_believes_it(bench: Bench) -> None:
    llm, codec = bench.origin(), bench.origin()
    stages = {"llm": stage(replica(llm), models=("m",)), "codec": stage(replica(codec))}
    door = bench.door(stages, routes=[{"path": "/v1/*", "stage": "llm"}])
    assert call(door, "/v1/models", CODEC).status == 200, "the door's own path is the stage's here"
    assert [request.target for request in codec.requests] == ["/v1/models"]
    assert codec.requests[0].get("x-preroll-stage") is None
    assert door.get("/v1/speak", fields=CODEC).status == 200
    assert [request.target for request in llm.requests] == ["/v1/speak"]
    unknown = call(door, "/speak", [("x-preroll-stage", "codek")])
    assert unknown.status == 404
    assert b'one of [\\"codec\\", \\"llm\\"]' in unknown.body


def test_a_replica_is_told_what_is_left_of_the_deadline(bench: Bench) -> None:
    origin = bench.origin()
    hold = threading.Event()

    def slow(_request: Message, wire: Wire) -> None:
        hold.wait(30)
        wire.send(OK)

    waited = bench.origin(slow)
    stages = {"chat": stage(replica(origin)), "one": stage(replica(waited, 1), max_wait_ms=60_000)}
    routes = [{"path": "/bound", "stage": "chat", "timeout_ms": 4000}]
    routes += [{"path": "/one", "stage": "one"}, {"path": "/free", "stage": "chat"}]
    door = bench.door(stages, routes=routes)
    deadline = [("x-preroll-deadline-ms", "20000")]
    wires = [door.ask("/one"), door.ask("/one", fields=deadline)]
    door.wait_for_state("one", queued=1)
    time.sleep(0.2)
    hold.set()
    assert [wire.response().status for wire in wires] == [200, 200]
    assert 15_000 < int(waited.requests[1].get("x-preroll-deadline-ms") or 0) <= 19_800
    assert [door.get(path).status for path in ("/bound", "/free")] == [200, 200]
    assert 0 < int(origin.requests[0].get("x-preroll-deadline-ms") or 0) <= 4000
    assert origin.requests[1].get("x-preroll-deadline-ms") is None


def test_a_full_door_still_takes_the_calls_of_those_who_are_in(bench: Bench) -> None:
    origin = bench.origin()
    door = bench.door({"codec": stage(replica(origin))}, limits={"connections": 2})
    clients = [door.connect() for _ in range(3)]
    assert clients[-1].response().status == 503, "the door is full"
    assert call(door, "/speak", CODEC).status == 200
    assert door.connect().response().status == 503, "it still is"


def test_in_a_drain_what_runs_may_still_call_other_stages(bench: Bench) -> None:
    doors: list[Door] = []
    called: list[int] = []

    def pipeline(_request: Message, wire: Wire) -> None:
        wire.send(SSE_HEAD + token("a"))
        (door,) = doors
        assert door.process is not None
        door.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(door), "the door accepts nobody else")
        called.append(call(door, "/speak", CODEC).status)
        wire.send(token("b") + LAST)

    stages = {
        "llm": stage(replica(bench.origin(pipeline))),
        "codec": stage(replica(bench.origin())),
    }
    routes = [{"path": "/llm", "stage": "llm"}]
    doors.append(bench.door(stages, routes=routes, limits={"drain_accept_ms": 50}))
    client = doors[0].ask("/llm")
    client.head()
    assert b'"b"' in b"".join(client.chunks())
    assert called == [200]
    assert doors[0].process is not None
    assert doors[0].process.wait(20) == 0


def refuses(door: Door) -> bool:
    """The listening socket stays open here: what nobody accepts is not answered."""
    wire = door.connect()
    wire.sock.settimeout(0.3)
    try:
        wire.send(request_bytes("GET", "/llm/none"))
        wire.head()
    except OSError:
        return True
    return False
