"""Stages that call stages through the door: what is carried on, what fails, what is cancelled."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest
from pipelines import SOURCE, ask, stage, three
from served import Served, until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def pipeline(serve: Callable[..., Served]) -> Served:
    service = serve(three(), SOURCE)
    service.start()
    return service


def log_of(service: Served, name: str) -> str:
    (replica,) = service.ready(name)
    return service.state.holder(replica).joinpath("log").read_text()


def test_a_call_carries_on_deadline_priority_session_and_trace(pipeline: Served) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {
        "x-preroll-deadline-ms": "9000",
        "x-preroll-priority": "3",
        "x-preroll-session": "chat-7",
        "traceparent": trace,
    }
    began_s = time.monotonic()
    status, body, _ = ask(pipeline, "/first/x", {"spend_s": 0.3}, headers)
    path = json.loads(body)["path"]
    assert status == 200 and time.monotonic() - began_s < 9
    assert [(hop["session"], hop["priority"], hop["trace"]) for hop in path] == [
        ("chat-7", "3", trace)
    ] * 3
    left = [hop["left_s"] for hop in path]
    assert 9.0 >= left[0] > left[1] > left[2] > 0
    assert left[0] - left[2] >= 0.3, "what the middle stage spent is gone"
    assert len({hop["id"] for hop in path}) == 3


def test_a_call_s_own_header_stands_in_place_of_the_carried_one(pipeline: Served) -> None:
    headers = {"x-preroll-priority": "3"}
    status, body, _ = ask(pipeline, "/first/x", {"lower": True}, headers)
    assert status == 200
    assert [hop["priority"] for hop in json.loads(body)["path"]] == ["3", "3", "-2"]


def test_three_stages_share_the_second_that_is_left(pipeline: Served) -> None:
    headers = {"x-preroll-deadline-ms": "1000"}
    status, _, _ = ask(pipeline, "/first/x", {"spend_s": 0.1, "sleep_s": 0.1}, headers)
    assert status == 200
    began_s = time.monotonic()
    status, body, names = ask(pipeline, "/first/x", {"spend_s": 0.2, "sleep_s": 30}, headers)
    assert (status, names.get("x-should-retry")) == (504, "false"), body
    assert time.monotonic() - began_s < 10, "nobody waits for the sleeper"
    until(lambda: "last: cancelled" in log_of(pipeline, "last"), "the last stage is cancelled")
    status, _, _ = ask(pipeline, "/first/x", {"spend_s": 0})
    assert status == 200


def test_an_error_of_the_called_stage_has_the_right_status(pipeline: Served) -> None:
    status, body, names = ask(pipeline, "/first/x", {"fail": True})
    assert status == 429 and b"no room" in body
    assert int(names["retry-after"]) >= 0
    status, body, _ = ask(pipeline, "/first/x", {"wrong": True})
    assert status == 502, "the client's own request was not wrong"
    assert b"answered 404" in body and b"no such voice" in body
    status, body, _ = ask(pipeline, "/first/x", {"wrong": True, "handle": True})
    assert status == 200 and json.loads(body)["status"] == 502


def test_an_undeclared_call_fails_and_says_what_is_allowed(pipeline: Served) -> None:
    status, _, _ = ask(pipeline, "/first/x", {"undeclared": "last"})
    assert status == 500
    said = "stage 'first' may not call 'last'; allowed: middle"
    until(lambda: said in log_of(pipeline, "first"), "the log says it")
    assert 'calls = ["last"]' in log_of(pipeline, "first")


def test_a_stream_passes_through_stages_as_it_comes_and_is_never_ended_falsely(
    pipeline: Served,
) -> None:
    status, body, _ = ask(pipeline, "/middle/x", {"chunks": True, "count": 4})
    assert (status, body) == (200, b"0\n1\n2\n3\n")
    before = pipeline.ready("last")
    connection = http.client.HTTPConnection("127.0.0.1", pipeline.port, timeout=60)
    text = json.dumps({"chunks": True, "count": 50, "every_s": 0.05, "die_at": 4})
    connection.request("POST", "/middle/x", text, {"content-type": "application/json"})
    broken = connection.getresponse()
    assert broken.status == 503 and b"broke off" in broken.read()
    connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", pipeline.port, timeout=60)
    until(lambda: set(pipeline.ready("last")) - set(before), "the last stage runs again")
    text = json.dumps({"stream": True, "count": 50, "every_s": 0.05, "die_at": 4})
    connection.request("POST", "/last/x", text, {"content-type": "application/json"})
    with pytest.raises(http.client.IncompleteRead) as cut:
        connection.getresponse().read()
    assert cut.value.partial == b"0\n1\n2\n3\n"
    connection.close()


def test_a_session_is_carried_through_a_stage(serve: Callable[..., Served]) -> None:
    from websockets.sync.client import connect

    service = serve(stage("first", "First", "last") + stage("last", "Last"), SOURCE)
    service.start()
    url = f"ws://127.0.0.1:{service.port}/first/x"
    headers = {"x-preroll-session": "chat-7"}
    with connect(url, additional_headers=headers, proxy=None) as client:
        for word in ("one", "two"):
            client.send(word)
            assert client.recv(timeout=30) == f"chat-7:{word}"

    def sessions(name: str) -> int:
        return int(service.survey().stages[name]["sessions"])

    until(lambda: sessions("first") == sessions("last") == 0, "both sessions have ended")


def test_a_client_that_leaves_ends_the_whole_chain(pipeline: Served) -> None:
    body = json.dumps({"sleep_s": 60}).encode()
    sock = socket.create_connection(("127.0.0.1", pipeline.port), timeout=60)
    head = f"POST /first/x HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    sock.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)

    def in_flight(name: str) -> int:
        return int(pipeline.survey().stages[name]["in_flight"])

    until(lambda: in_flight("last") == 1, "the chain is three deep")
    sock.close()
    for name in ("first", "middle", "last"):
        until(lambda name=name: in_flight(name) == 0, f"{name} has nothing in flight")
    until(lambda: "last: cancelled" in log_of(pipeline, "last"), "the code was cancelled")


def test_a_pipeline_at_its_limits_does_not_wait_for_itself(serve: Callable[..., Served]) -> None:
    service = serve(three(max_concurrency="1", queue='{ max_wait = "60s" }'), SOURCE)
    service.start()
    statuses: list[int] = []

    def one(path: str) -> None:
        statuses.append(ask(service, path, {"sleep_s": 0.01})[0])

    paths = ["/first/x", "/middle/x", "/last/x"] * 8
    threads = [threading.Thread(target=one, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert statuses == [200] * len(paths)


def test_a_called_stage_is_started_from_zero_for_the_call(serve: Callable[..., Served]) -> None:
    zero = stage("last", "Last", scale="{ min = 0, max = 1 }")
    service = serve(stage("middle", "Middle", "last") + zero, SOURCE)
    service.start()
    assert service.ready("last") == []
    assert ask(service, "/middle/x", {})[0] == 200
    assert len(service.ready("last")) == 1
