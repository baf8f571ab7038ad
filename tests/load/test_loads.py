"""Shapes of load: what is offered is what was asked for, or the result says that it was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from loading import Runner

from preroll.errors import InputError
from preroll.instruments.load.client import Client, Mock
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import read
from preroll.instruments.load.requests import Ask, parse_url, template

Start = Callable[..., Mock]


def test_a_closed_loop_keeps_its_connections_and_leaves_the_warm_up_out(
    mock: Start, runner: Runner
) -> None:
    raw = runner.raw(mock(ttft_ms=20).url, Plan(connections=5, requests=40, warmup=10))
    assert (len(raw.warmup), len(raw.measured)) == (10, 40)
    assert max(r["in_flight"] for r in raw.measured) == 5
    assert raw.end is not None and raw.end["connections"] == 5


def test_without_reuse_every_request_has_a_connection(mock: Start, runner: Runner) -> None:
    plan = Plan(connections=2, requests=10, warmup=0, reuse=False)
    raw = runner.raw(mock().url, plan)
    assert raw.end is not None and raw.end["connections"] == 10
    assert not any(r["reused"] for r in raw.measured)


def test_an_open_loop_counts_from_the_intended_send(mock: Start, runner: Runner) -> None:
    # One server, 30 ms each, asked for every 10 ms: the queue grows and latency must show it.
    server = mock(servers=1, service="constant", service_ms=30)
    plan = Plan(rate=100.0, arrivals="constant", requests=40, warmup=0)
    raw = runner.raw(server.url, plan)
    intended = [r["intended_ns"] for r in sorted(raw.measured, key=lambda r: r["intended_ns"])]
    steps = {b - a for a, b in pairwise(intended)}
    assert all(abs(step - 10_000_000) < 1000 for step in steps)
    last = max(raw.measured, key=lambda r: r["intended_ns"])
    assert last["end_ns"] - last["intended_ns"] > 500_000_000


def test_a_rate_beyond_what_may_be_in_flight_is_refused(mock: Start, tmp_path: Path) -> None:
    from preroll.instruments.load.result import Targets, summarise

    plan = Plan(rate=500.0, arrivals="constant", requests=60, warmup=0)
    server = parse_url(mock(ttft_ms=400).url)
    file = tmp_path / "r.ndjson"
    request = template(server, Ask(model="mock", max_tokens=2), "x")
    with Client(plan.spec(server, [request], file) | {"max_in_flight": 10}) as client:
        list(client)
    result = summarise(read(file), plan, Targets())
    assert result.failures["client_limit"] > 0
    refused = result.metrics["ttft"].quantiles["p50"].refused
    assert refused is not None and "not sent" in refused.reason


def test_a_replay_keeps_its_times(mock: Start, runner: Runner) -> None:
    raw = runner.raw(mock().url, Plan(replay_s=(0.0, 0.05, 0.05, 0.2)))
    at = sorted(r["intended_ns"] for r in raw.measured)
    assert [round((t - at[0]) / 1e6) for t in at] == [0, 50, 50, 200]


def test_runs_of_several_calls_are_sequential_and_compared_with_independence(
    mock: Start, runner: Runner
) -> None:
    plan = Plan(connections=4, requests=20, calls=3, warmup=0)
    result = runner.result(mock(ttft_ms=3).url, plan)
    assert result.requests == 60 and result.runs["runs"] == 20
    assert 0 <= result.runs["expected_if_independent"] <= 1
    raw = read(runner.folder / "records.ndjson")
    for run in range(20):
        calls = sorted((r for r in raw.measured if r["run"] == run), key=lambda r: r["call"])
        assert [r["call"] for r in calls] == [0, 1, 2]
        assert calls[0]["end_ns"] <= calls[1]["started_ns"] <= calls[2]["started_ns"]


def test_levels_change_on_command_and_draining_is_said(mock: Start) -> None:
    server = parse_url(mock(ttft_ms=5).url)
    spec = {
        "version": 1,
        "target": server.address,
        "requests": [template(server, Ask(model="mock", max_tokens=2), "x")],
        "load": {"mode": "closed", "connections": 0},
        "control": True,
    }
    with Client(spec) as client:
        client.level(4, "four")
        lines = iter(client)
        seen = [next(lines) for _ in range(20)]
        assert {line["tag"] for line in seen} == {"four"}
        client.level(0, "none")
        drained = next(line for line in lines if line["type"] == "drained")
        assert drained["tag"] == "none"
        client.abort()
        assert list(lines)[-1]["type"] == "end"


def test_a_wrong_specification_is_named(mock: Start) -> None:
    with pytest.raises(InputError, match="wrong_key"), Client({"wrong_key": 1}) as client:
        list(client)


@pytest.mark.parametrize("when_s", [0.0, 0.3])
def test_an_interrupt_leaves_a_valid_partial_result(
    mock: Start, tmp_path: Path, when_s: float
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from preroll.cli.main import main; main()", "load"]
    command += [mock(ttft_ms=20).url, "--connections", "4", "--duration", "60s"]
    command += ["--warmup", "0", "--out", str(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    records = out / "records.ndjson"
    deadline = time.monotonic() + 60
    while not (records.exists() and (when_s == 0.0 or records.stat().st_size > 0)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr.decode()
    result = json.loads((out / "result.json").read_text())
    assert result["interrupted"] and result["ok"] == len(read(records).ok)
    assert b"INTERRUPTED" in stdout


def test_a_killed_client_leaves_records_that_can_be_read(mock: Start, tmp_path: Path) -> None:
    server = parse_url(mock(ttft_ms=5).url)
    file = tmp_path / "r.ndjson"
    plan = Plan(connections=4, seconds=60.0, warmup=0)
    client = Client(plan.spec(server, [template(server, Ask(model="mock"), "x")], file))
    deadline = time.monotonic() + 60
    while not file.exists() or file.stat().st_size < 2000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    client.close()
    raw = read(file)
    assert raw.end is None and len(raw.measured) > 0
