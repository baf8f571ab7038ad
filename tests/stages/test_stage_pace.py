"""Paced streams as the door passes them on: the stage's frame, the route's, the objective."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable

import pytest
from pipelines import SOURCE, stage
from served import TIMEOUT_S, Served

from preroll.serve.http import Response, request

pytestmark = pytest.mark.timeout(120)


def admin(service: Served, path: str) -> Response:
    return request(f"unix:{service.state.socket('door.sock')}", "GET", path)


def metrics(service: Served) -> dict[str, float]:
    text = admin(service, "/metrics").body.decode()
    rows = re.findall(r'^(preroll_\w+)\{stage="last"[^}]*\} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in rows}


def pace_of(service: Served, request_id: str) -> dict[str, float]:
    found: dict[str, float] = admin(service, f"/why/{request_id}").json()["pace"]
    return found


def listen(service: Served, path: str, request_id: str) -> None:
    """Five frames, each let go 0.1 s after the one before was heard.

    The door has seen a frame before its listener has, so its gaps are never shorter than that,
    however late anyone is.
    """
    gate = service.folder / f"{request_id}.gate"
    gate.touch()
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT_S)
    body = json.dumps({"stream": True, "count": 5, "gate": str(gate)})
    connection.request("POST", path, body, {"x-request-id": request_id})
    response = connection.getresponse()
    for number in range(5):
        assert response.read(2) == b"%d\n" % number
        time.sleep(0.1)
        with gate.open("ab") as file:
            file.write(b".")
    assert (response.status, response.read()) == (200, b"")
    connection.close()


def test_a_stream_that_comes_too_slowly_underruns_and_misses_its_objective(
    serve: Callable[..., Served],
) -> None:
    fast = '[[route]]\npath = "/fast"\nstage = "last"\nframe = "5s"\n'
    service = serve(stage("last", "Last", frame='"20ms"', slo='{ pace = "60ms" }') + fast, SOURCE)
    service.start()
    listen(service, "/last/x", "slow-1")
    pace = pace_of(service, "slow-1")
    assert (pace["frames"], pace["underruns"]) == (5, 4)
    assert pace["realtime_factor"] >= 5 and pace["worst_gap_ms"] >= 100
    said = service.command("why", "slow-1", "--state", str(service.state.root)).stdout
    assert "5 frames" in said and "4 underruns" in said
    counted = metrics(service)
    assert counted["preroll_stream_underruns_total"] == 4
    assert counted["preroll_paced_streams_off_pace_total"] == 1
    listen(service, "/fast", "fast-1")
    pace = pace_of(service, "fast-1")
    assert pace["underruns"] == 0 and pace["realtime_factor"] < 1, "the route's frame is longer"
    counted = metrics(service)
    assert counted["preroll_paced_streams_total"] == 2
    assert counted["preroll_stream_realtime_factor_count"] == 2
