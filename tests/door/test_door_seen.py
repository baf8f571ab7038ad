"""What is seen of the door: access log, trace context, bounded metrics, the truth of waits."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from door_bench import Bench, Door, replica, stage
from door_origin import DONE, LAST, SSE_HEAD, chunk, plain, token
from door_wire import Message, Wire, wait_until


def lines_of(path: Path) -> list[dict[str, object]]:
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def test_the_access_log_keeps_every_error_and_a_sample_of_the_rest(bench: Bench) -> None:
    def answer(request: Message, wire: Wire) -> None:
        wire.send(plain("500 Broken" if request.target == "/bad" else "200 OK"))

    log = bench.root / "access.log"
    flags = ["--access-log", str(log), "--access-sample", "0"]
    door = bench.door({"chat": stage(replica(bench.origin(answer), id="r-1"))}, *flags)
    for target in ["/good", "/bad"] * 5:
        door.get(target, fields=[("x-request-id", target[1:])])
    wait_until(lambda: len(lines_of(log)) >= 5, "the errors are written")
    lines = lines_of(log)
    assert [(line["status"], line["request_id"]) for line in lines] == [(500, "bad")] * 5
    assert {line["replica"] for line in lines} == {"r-1"}
    assert all(isinstance(line["queue_ms"], float | int) for line in lines)


def test_the_access_log_tells_of_a_stream(bench: Bench) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        wire.send(SSE_HEAD + token("a") + token("b") + DONE + LAST)

    log = bench.root / "access.log"
    flags = ["--access-log", str(log), "--access-sample", "1"]
    door = bench.door({"chat": stage(replica(bench.origin(answer)), models=("m",))}, *flags)
    assert door.chat(stream=True).response().is_whole
    wait_until(lambda: lines_of(log), "a line")
    (line,) = lines_of(log)
    assert line["stage"] == "chat" and line["path"] == "/v1/chat/completions"
    assert isinstance(line["ttft_ms"], float) and line["outcome"] == "complete"


@pytest.mark.parametrize(("last", "outcome"), [(DONE, "complete"), (token("b"), "client_gone")])
def test_a_client_that_hangs_up_after_the_last_event_has_left_nothing(
    last: str, outcome: str, bench: Bench
) -> None:
    def answer(_request: Message, wire: Wire) -> None:
        wire.send(SSE_HEAD + token("a") + last)
        wire.rest()

    log = bench.root / "access.log"
    flags = ["--access-log", str(log), "--access-sample", "1"]
    door = bench.door({"chat": stage(replica(bench.origin(answer)), models=("m",))}, *flags)
    client = door.chat(stream=True)
    client.head()
    events = client.chunks()
    assert [len(next(events)) > 0 for _ in range(2)] == [True, True]
    client.close()
    wait_until(lambda: lines_of(log), "a line")
    assert [line["outcome"] for line in lines_of(log)] == [outcome]


def test_trace_context_is_kept_or_made(bench: Bench) -> None:
    origin = bench.origin()
    door = bench.door({"any": stage(replica(origin))})
    given = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    door.get("/x", fields=[("traceparent", given), ("tracestate", "v=1")])
    assert origin.requests[0].get("traceparent") == given
    assert origin.requests[0].get("tracestate") == "v=1"
    for bad in ["", "00-0-0-0", given.upper(), "00-" + "0" * 32 + "-0123456789abcdef-01"]:
        door.get("/x", fields=[("traceparent", bad)])
        made = origin.requests[-1].get("traceparent") or ""
        assert len(made) == 55 and made != given


def test_strangers_cannot_grow_the_metrics(bench: Bench) -> None:
    stages = {"one": stage(replica(bench.origin()), models=("m",)), "two": stage(models=("n",))}
    door = bench.door(stages)

    def names() -> set[str]:
        text = door.admin("GET", "/metrics").body.decode()
        return {line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")}

    kind = [("Content-Type", "application/json")]
    for number in range(2):  # One of each first: kinds of refusals are the program's own words.
        door.get(f"/path/{number}")
        door.get("/v1/chat/completions", json.dumps({"model": f"x{number}"}), kind)
    before = names()
    for number in range(50):
        door.get(f"/path/{number}", fields=[("x-request-id", f"id-{number}")])
        door.get("/v1/chat/completions", json.dumps({"model": f"x{number}"}), kind)
        door.get(f"/{number}", method=f"M{number}")
    assert names() == before


def test_a_long_audio_file_passes_to_its_model(bench: Bench) -> None:
    origin = bench.origin()
    stages = {
        "stt": stage(replica(origin, model="tiny"), models=("whisper",)),
        "other": stage(models=("n",)),
    }
    door = bench.door(stages)
    audio = bytes(range(256)) * (20 << 12)
    body = (
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        + audio
        + b'\r\n--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--B--\r\n'
    )
    kind = [("Content-Type", "multipart/form-data; boundary=B")]
    assert door.get("/v1/audio/transcriptions", body, kind).status == 200
    assert origin.bodies() == [body.replace(b"\r\n\r\nwhisper\r\n", b"\r\n\r\ntiny\r\n")]


def test_more_than_a_hundred_streams_run_side_by_side(bench: Bench) -> None:
    is_over = threading.Event()

    def answer(_request: Message, wire: Wire) -> None:
        wire.send(SSE_HEAD + token("a"))
        is_over.wait(60)
        wire.send(DONE + LAST)

    origin = bench.origin(answer, is_tcp=True)
    door = bench.door({"chat": stage(replica(origin, 300))})
    wires = [door.chat(stream=True) for _ in range(250)]
    streams = [wire.chunks() for wire in wires]
    for wire, chunks in zip(wires, streams, strict=True):
        wire.head()
        assert b'"a"' in next(chunks)
    assert door.state()["in_flight"] == 250
    is_over.set()
    for chunks in streams:
        assert list(chunks)[-1] == b"data: [DONE]\n\n"


def expected_and_real(door: Door) -> tuple[float, float]:
    answer = door.get("/x")
    assert answer.status == 200
    expected_s = float(answer.get("x-preroll-expected-wait") or 0)
    return expected_s * 1000, float(answer.get("x-preroll-queue-ms") or 0)


def test_the_expected_wait_is_near_the_real_one(bench: Bench) -> None:
    """A bound that only a wrong estimate breaks: off by half, over hundreds of milliseconds."""

    def answer(_request: Message, wire: Wire) -> None:
        assert not threading.Event().wait(0.1)
        wire.send(plain())

    table = stage(replica(bench.origin(answer), 1), default_service_ms=100, max_wait_ms=60_000)
    door = bench.door({"chat": table})
    pairs: list[tuple[float, float]] = []

    def client() -> None:
        pairs.extend(expected_and_real(door) for _ in range(5))

    threads = [threading.Thread(target=client) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waited = [(expected, real) for expected, real in pairs if real > 250]
    assert len(waited) >= 10, pairs
    ratios = sorted(expected / real for expected, real in waited)
    assert 0.5 < ratios[len(ratios) // 2] < 2.0, pairs
    snapshot = door.state()
    assert snapshot["expected_wait_error_ms"] is not None


ANSWER = (
    b'{"id":"c","choices":[{"message":{"content":"\\"usage\\": {\\"prompt_tokens\\": 99}"}}],'
    b'"usage":{"prompt_tokens":12,"completion_tokens":7,"total_tokens":19,'
    b'"prompt_tokens_details":{"cached_tokens":4}}}'
)


def series(door: Door, name: str) -> float:
    """The value of one series, its labels in the order of the exposition."""
    lines = door.admin("GET", "/metrics").body.decode().splitlines()
    return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(name)))


def test_tokens_of_whole_answers_are_counted_however_they_come(bench: Bench) -> None:
    def answer(request: Message, wire: Wire) -> None:
        kind = "Content-Type: application/json\r\n"
        if request.target == "/whole":
            wire.send(plain(body=ANSWER, fields=kind))
            return
        wire.send(f"HTTP/1.1 200 OK\r\n{kind}Transfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(ANSWER), 9):
            wire.send(chunk(ANSWER[at : at + 9]))
        wire.send(LAST)

    log = bench.root / "access.log"
    flags = ["--access-log", str(log), "--access-sample", "1"]
    door = bench.door({"chat": stage(replica(bench.origin(answer)))}, *flags)
    for target in ["/whole", "/chunked"]:
        assert door.get(target).body == ANSWER
    wait_until(lambda: len(lines_of(log)) == 2, "two lines")
    for line in lines_of(log):
        counts = (line["prompt_tokens"], line["cached_tokens"], line["completion_tokens"])
        assert counts == (12, 4, 7), line
    assert series(door, "preroll_prompt_tokens_total") == 24
    assert series(door, "preroll_cached_prompt_tokens_total") == 8
    assert series(door, "preroll_completion_tokens_total") == 14


def test_a_session_stays_on_its_replica_and_is_told_of(bench: Bench) -> None:
    log = bench.root / "access.log"
    flags = ["--access-log", str(log), "--access-sample", "1"]
    replicas = [replica(bench.origin()) for _ in range(4)]
    door = bench.door({"chat": stage(*replicas)}, *flags)
    homes: dict[str, set[str | None]] = {}
    for turn in range(8):
        for name in ("anna", "ben", "cleo"):
            fields = [("x-preroll-session", name), ("x-request-id", f"{name}-{turn}")]
            answer = door.get("/x", fields=fields)
            homes.setdefault(name, set()).add(answer.get("x-preroll-replica"))
    assert [len(home) for home in homes.values()] == [1, 1, 1], homes
    life = json.loads(door.admin("GET", "/why/anna-7").body)
    assert life["session"] == "anna"
    wait_until(lambda: len(lines_of(log)) == 24, "all lines")
    assert {line["session"] for line in lines_of(log)} == set(homes)
    assert series(door, 'preroll_session_moves_total{stage="chat",kind="new"}') == 3
    assert series(door, 'preroll_session_moves_total{stage="chat",kind="kept"}') == 21
    door.get("/x", fields=[("x-preroll-session", "no name\u00e9")])
    assert series(door, 'preroll_session_moves_total{stage="chat",kind="new"}') == 3


def test_a_refusal_tells_why_nothing_starts(bench: Bench) -> None:
    cause = "torch.OutOfMemoryError: CUDA out of memory"
    door = bench.door({"chat": stage(cause=cause)})
    answer = door.get("/x")
    assert answer.status == 503
    assert cause in json.loads(answer.body)["error"]["message"]
    door.put({"chat": stage(cause=None)})
    assert cause not in door.get("/x").body.decode()
