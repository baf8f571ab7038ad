"""What passes through: bodies both ways, heads, routes and models, ids."""

from __future__ import annotations

import json

import pytest
from door_bench import Bench, replica, stage
from door_origin import DONE, LAST, SSE_HEAD, chunk, plain, token
from door_wire import Message, Wire, request_bytes, sse_events, wait_until


def echo(request: Message, wire: Wire) -> None:
    wire.send(plain(body=request.body, fields="X-From: origin\r\n"))


def test_a_body_passes_both_ways_whatever_its_framing(bench: Bench) -> None:
    origin = bench.origin(echo)
    door = bench.door({"any": stage(replica(origin))})
    assert door.get("/echo", b"hello").body == b"hello"
    wire = door.connect()
    wire.send(request_bytes("POST", "/echo", [("Transfer-Encoding", "chunked")]))
    wire.send(chunk("hel") + chunk("lo") + b"0\r\n\r\n")
    assert wire.response().body == b"hello"
    wire.send(request_bytes("POST", "/echo", (), b"again"))
    answer = wire.response()
    assert (answer.body, answer.get("x-from")) == (b"again", "origin")


def test_a_large_upload_and_download_pass_unchanged(bench: Bench) -> None:
    data = bytes(range(256)) * 16384
    door = bench.door(
        {"any": stage(replica(bench.origin(echo)))}, routes=[{"path": "/up", "stage": "any"}]
    )
    assert door.get("/up", data).body == data


def test_a_chunk_leaves_when_it_comes(bench: Bench) -> None:
    wires: list[Wire] = []

    def answer(_request: Message, wire: Wire) -> None:
        wires.append(wire)
        wire.send(SSE_HEAD)
        wire.rest()

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    client = door.chat(stream=True)
    head = client.head()
    assert head.get("content-type") == "text/event-stream"
    chunks = client.chunks()
    for text in ["a", "b", "c"]:
        wires[0].send(token(text))
        assert json.loads(next(chunks)[6:])["choices"][0]["delta"]["content"] == text
    wires[0].send(DONE + LAST)
    assert next(chunks) == b"data: [DONE]\n\n"
    assert next(chunks, None) is None


def test_an_event_split_over_chunks_arrives_whole(bench: Bench) -> None:
    text = 'data: {"choices":[{"delta":{"content":"split é"}}]}\n\n'.encode()

    def answer(_request: Message, wire: Wire) -> None:
        wire.send(SSE_HEAD)
        for at in range(len(text)):
            wire.send(chunk(text[at : at + 1]))
        wire.send(DONE + LAST)

    door = bench.door({"chat": stage(replica(bench.origin(answer)))})
    answered = door.chat(stream=True).response()
    assert answered.body == text + b"data: [DONE]\n\n"
    assert len(sse_events(answered.body)) == 2


def test_head_has_no_body_and_keeps_the_length(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")

    door = bench.door({"any": stage(replica(bench.origin(answer)))})
    wire = door.connect()
    for _ in range(2):
        wire.send(request_bytes("HEAD", "/x"))
        answered = wire.response("HEAD")
        assert (answered.status, answered.get("content-length")) == (200, "1234")


def test_expect_continue_is_answered_before_the_body(bench: Bench) -> None:
    door = bench.door({"any": stage(replica(bench.origin(echo)))})
    wire = door.connect()
    fields = [("Expect", "100-continue"), ("Content-Length", "4")]
    wire.send(request_bytes("POST", "/echo", fields))
    assert wire.head().status == 100
    wire.send(b"body")
    assert wire.response().body == b"body"


def test_trailers_pass_to_the_client(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        wire.send(head + chunk("data") + b"0\r\nX-Sum: 7\r\n\r\n")

    door = bench.door({"any": stage(replica(bench.origin(answer)))})
    answered = door.get("/x", fields=[("TE", "trailers")])
    assert answered.body == b"data"
    assert ("x-sum", "7") in [(key.lower(), value) for key, value in answered.trailers]


MULTIPART = (
    '--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\x00\x01\r\n'
    '--B\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n--B--\r\n'
)


def ask_for(door: object, model: str, how: str) -> Message:
    get = door.get  # type: ignore[attr-defined]
    if how == "json":
        kind = [("Content-Type", "application/json")]
        return get("/v1/chat/completions", json.dumps({"model": model}), kind)
    if how == "multipart":
        kind = [("Content-Type", "multipart/form-data; boundary=B")]
        return get("/v1/audio/transcriptions", MULTIPART.replace("{model}", model), kind)
    return get(f"/v1/realtime?model={model}")


@pytest.mark.parametrize("how", ["json", "multipart", "query"])
def test_the_model_picks_the_stage(bench: Bench, how: str) -> None:
    one, two = bench.origin(echo), bench.origin(echo)
    stages = {
        "one": stage(replica(one), models=("m1",)),
        "two": stage(replica(two), models=("m2", "m2b")),
    }
    door = bench.door(stages)
    assert ask_for(door, "m2b", how).status == 200
    assert (len(one.requests), len(two.requests)) == (0, 1)
    answered = ask_for(door, "unknown", how)
    assert answered.status == 404
    assert b"unknown" in answered.body
    assert (len(one.requests), len(two.requests)) == (0, 1)


def test_two_models_in_one_body_are_refused(bench: Bench) -> None:
    origin = bench.origin()
    stages = {"one": stage(replica(origin), models=("a",)), "two": stage(models=("b",))}
    door = bench.door(stages)
    for body in ['{"model": "a", "model": "b"}', '{"model": "a", "mod\\u0065l": "b"}']:
        kind = [("Content-Type", "application/json")]
        assert door.get("/v1/chat/completions", body, kind).status == 400
    assert not origin.requests


def test_invalid_utf8_is_refused_and_breaks_nothing(bench: Bench) -> None:
    origin = bench.origin()
    stages = {"one": stage(replica(origin), models=("a",)), "two": stage(models=("b",))}
    door = bench.door(stages)
    kind = [("Content-Type", "application/json")]
    answered = door.get("/v1/chat/completions", b'{"model": "a\xff"}', kind)
    assert answered.status == 400
    json.loads(answered.body)
    assert door.get("/v1/realtime?model=%ff").status in (400, 404)
    wire = door.connect()
    wire.send(b"GET /\xff\xfe HTTP/1.1\r\nHost: d\r\n\r\n")
    assert wire.response().status == 400
    assert ask_for(door, "a", "json").status == 200


def test_the_engine_is_told_the_name_it_knows(bench: Bench) -> None:
    origin = bench.origin()
    stages = {"chat": stage(replica(origin, model="org/engine"), models=("public",))}
    door = bench.door(stages)
    body = '{"a": 1, "model": "public", "b": "é"}'
    kind = [("Content-Type", "application/json")]
    assert door.get("/v1/chat/completions", body, kind).status == 200
    expected = '{"a": 1, "model": "org/engine", "b": "é"}'.encode()
    assert origin.bodies() == [expected]
    assert origin.requests[0].get("content-length") == str(len(expected))


def test_models_are_listed(bench: Bench) -> None:
    stages = {"one": stage(models=("a", "b")), "two": stage(models=("c",))}
    listed = json.loads(bench.door(stages).get("/v1/models").body)
    assert sorted(entry["id"] for entry in listed["data"]) == ["a", "b", "c"]


def test_routes_go_by_exact_path_and_longest_prefix(bench: Bench) -> None:
    one, two = bench.origin(), bench.origin()
    routes = [
        {"path": "/a/*", "stage": "one", "strip_prefix": True},
        {"path": "/a/b/*", "stage": "two"},
    ]
    door = bench.door({"one": stage(replica(one)), "two": stage(replica(two))}, routes=routes)
    assert door.get("/a/x?q=1").status == 200
    assert door.get("/a/b/c").status == 200
    assert door.get("/other").status == 404
    assert [request.target for request in one.requests] == ["/x?q=1"]
    assert [request.target for request in two.requests] == ["/a/b/c"]


def test_replicas_get_their_own_credentials_and_no_client_hop_headers(bench: Bench) -> None:
    origin = bench.origin()
    table = replica(origin, authorization="Bearer inner", host="engine:1")
    door = bench.door({"any": stage(table)})
    fields = [
        ("Authorization", "Bearer client"),
        ("Connection", "close, X-Secret"),
        ("X-Secret", "hop"),
        ("Proxy-Authorization", "x"),
        ("Keep-Alive", "timeout=5"),
        ("X-Kept", "yes"),
    ]
    assert door.get("/x", fields=fields).status == 200
    seen = origin.requests[0]
    assert seen.all("authorization") == ["Bearer inner"]
    assert (seen.get("host"), seen.get("x-kept")) == ("engine:1", "yes")
    for gone in ["x-secret", "proxy-authorization", "keep-alive"]:
        assert seen.get(gone) is None, gone


def test_request_ids_are_passed_on_and_strange_ones_replaced(bench: Bench) -> None:
    origin = bench.origin()
    door = bench.door({"any": stage(replica(origin))})
    assert door.get("/x", fields=[("X-Request-Id", "mine-1")]).get("x-request-id") == "mine-1"
    assert origin.requests[0].get("x-request-id") == "mine-1"
    for strange in ["http://internal/", "../../etc", "a b", "x" * 500, "<script>", '"; drop']:
        given = door.get("/x", fields=[("X-Request-Id", strange)]).get("x-request-id")
        assert given and given != strange
        assert origin.requests[-1].get("x-request-id") == given


def test_no_header_of_a_client_or_replica_can_inject_another(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Bad: a\rInjected: 1\r\n\r\n")

    origin = bench.origin(answer)
    door = bench.door({"any": stage(replica(origin))})
    for bad in ["a\rInjected: 1", "a\nInjected: 1", "a\0b"]:
        wire = door.connect()
        wire.send(f"GET /x HTTP/1.1\r\nHost: d\r\nX-Bad: {bad}\r\n\r\n")
        assert wire.response().status == 400
    assert not origin.requests
    answered = door.get("/x")
    assert answered.get("injected") is None
    assert answered.status in (200, 502)


def test_pipelined_requests_are_answered_in_order(bench: Bench) -> None:
    door = bench.door({"any": stage(replica(bench.origin(echo)))})
    wire = door.connect()
    bodies = [b"%d" % i * (i + 1) for i in range(20)]
    wire.send(b"".join(request_bytes("POST", "/echo", (), body) for body in bodies))
    assert [wire.response().body for _ in bodies] == bodies


def test_a_fragmented_head_is_one_head(bench: Bench) -> None:
    door = bench.door({"any": stage(replica(bench.origin(echo)))})
    wire = door.connect()
    wire.sock.setsockopt(6, 1, 1)
    for byte in request_bytes("POST", "/echo", [("X-Long", "v" * 100)], b"body"):
        wire.send(bytes([byte]))
    assert wire.response().body == b"body"


def test_a_request_has_one_life_that_can_be_told(bench: Bench) -> None:
    door = bench.door({"chat": stage(replica(bench.origin(), id="r-1"), models=("m",))})
    body = json.dumps({"model": "m"})
    door.get("/v1/chat/completions", body, [("X-Request-Id", "tell-me")])
    wait_until(lambda: door.admin("GET", "/why/tell-me").status == 200, "the life is kept")
    life = json.loads(door.admin("GET", "/why/tell-me").body)
    assert (life["id"], life["stage"], life["replica"]) == ("tell-me", "chat", "r-1")
    assert life["status"] == 200 and life["attempts"] == 1
    assert life["arrived_ns"] <= life["admitted_ns"] <= life["first_byte_ns"] <= life["ended_ns"]
    assert door.admin("GET", "/why/unknown").status == 404


def test_metrics_tell_what_happened(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        usage = '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
        wire.send(SSE_HEAD + token("a") + token("b") + chunk(f"data: {usage}\n\n") + DONE + LAST)

    door = bench.door({"chat": stage(replica(bench.origin(answer)), models=("m",))})
    assert door.chat(stream=True).response().is_whole
    door.wait_for_state(finished_total=1)
    text = door.admin("GET", "/metrics").body.decode()
    labels = '{stage="chat",model_name="m"}'
    for line in [
        f"preroll_time_to_first_content_seconds_count{labels} 1",
        f"preroll_completion_tokens_total{labels} 2",
        f"preroll_request_attempts_sum{labels} 1.0",
        f"vllm:num_requests_running{labels} 0",
        'preroll_requests_total{stage="chat",kind="complete"} 1',
    ]:
        assert line in text.splitlines(), line
