"""Awkward servers: what counts as a token, what is a failure, what is said."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from loading import Runner

from preroll.instruments.load.client import Mock
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.requests import Ask, parse_address
from preroll.instruments.load.result import ttft_ms

Start = Callable[..., Mock]
FOUR = Plan(connections=2, requests=4, warmup=0, timeout_s=30.0)


def failures(runner: Runner, url: str, plan: Plan = FOUR) -> set[str]:
    raw = runner.raw(url, plan)
    assert len(raw.measured) == 4
    return {r["failure"]["kind"] if r["failure"] else "" for r in raw.measured}


@pytest.mark.parametrize("mode", ["role_first", "comments"])
def test_a_role_and_a_keep_alive_are_not_the_first_token(
    mock: Start, runner: Runner, mode: str
) -> None:
    raw = runner.raw(mock(mode=mode, ttft_ms=80, gap_ms=2).url, FOUR)
    for record in raw.measured:
        assert ttft_ms(record) >= 80
        assert record["first_byte_ns"] < record["first_content_ns"]
        assert record["content_events"] == 8


def test_reasoning_is_the_first_token(mock: Start, runner: Runner) -> None:
    raw = runner.raw(mock(mode="reasoning", ttft_ms=5, gap_ms=20).url, FOUR)
    # Reasoning is the first half of the tokens: without it the first would come 80 ms later.
    assert all(r["content_events"] == 8 for r in raw.measured)


def test_split_and_dripped_events_are_whole_events(mock: Start, runner: Runner) -> None:
    for mode in ("split", "crlf"):
        raw = runner.raw(mock(mode=mode, ttft_ms=2, gap_ms=4).url, FOUR)
        assert {r["content_events"] for r in raw.measured} == {8}
        assert all(r["done_seen"] and r["completion_tokens"] == 8 for r in raw.measured)
    ask = Ask(model="mock", max_tokens=1)
    raw = runner.raw(mock(mode="drip").url, FOUR, ask)
    assert {(r["content_events"], r["failure"]) for r in raw.measured} == {(1, None)}
    assert all(r["reads"] > 20 for r in raw.measured)


class _Closes(socketserver.StreamRequestHandler):
    """Answers one chat, says that it keeps the connection, and closes it."""

    def handle(self) -> None:
        length = 0
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        self.rfile.read(length)
        events = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'
        head = b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: %d\r\n\r\n"
        self.wfile.write(head % len(events) + events)


def test_a_server_that_closes_what_it_announced_to_keep_is_named_with_the_remedy(
    runner: Runner,
) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Closes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        plan = Plan(connections=1, requests=20, warmup=0)
        kept = runner.result(url, plan)
        assert kept.ok < 20 and set(kept.failures) <= {"closed", "reset"}
        assert any("--new-connections" in note for note in kept.notes)
        own = runner.result(url, replace(plan, reuse=False))
        assert (own.ok, own.notes) == (
            20,
            ("20 answers reported no usage: tokens are not counted for them",),
        )
        server.shutdown()


def test_an_engine_that_keeps_no_connection_is_not_asked_to() -> None:
    assert parse_address("unix:/s", 0).spec()["reuse"] is False
    assert parse_address("tcp:127.0.0.1:9", 4000).spec()["reuse"] is True
    plan = Plan(connections=1, requests=1)
    assert plan.spec(parse_address("unix:/s", 0), [], None)["reuse"] is False


def test_an_error_after_200_is_a_failure(mock: Start, runner: Runner) -> None:
    assert failures(runner, mock(mode="error_after").url) == {"stream_error"}


def test_streams_that_end_early_are_failures(mock: Start, runner: Runner) -> None:
    assert failures(runner, mock(mode="close_early").url) == {"closed"}
    assert failures(runner, mock(mode="reset", gap_ms=5).url) <= {"reset", "closed"}


def test_a_server_that_never_answers_or_stalls_times_out(mock: Start, runner: Runner) -> None:
    plan = Plan(connections=2, requests=4, warmup=0, timeout_s=0.3)
    assert failures(runner, mock(mode="never").url, plan) == {"timeout"}
    assert failures(runner, mock(mode="stall").url, plan) == {"timeout"}


def test_an_early_answer_is_recorded_while_the_body_is_still_being_sent(
    mock: Start, runner: Runner
) -> None:
    ask = Ask(model="mock", extra={"filler": "x" * 20_000_000})
    raw = runner.raw(mock(mode="early_answer").url, FOUR, ask)
    # Whether the answer outruns the reset is the kernel's choice; it is a failure either way.
    assert {r["failure"]["kind"] for r in raw.measured} <= {"status", "reset", "closed"}
    assert len(raw.measured) == 4


def test_a_status_of_500_is_a_failure_with_the_servers_words(mock: Start, runner: Runner) -> None:
    raw = runner.raw(mock(mode="http_error").url, FOUR)
    assert all("planted" in r["failure"]["detail"] for r in raw.measured)


def test_nobody_listening_is_a_failure_and_the_run_ends(runner: Runner) -> None:
    assert failures(runner, "http://127.0.0.1:9") == {"connect"}


def test_events_of_100_mb_are_counted_without_being_kept(mock: Start, runner: Runner) -> None:
    plan = Plan(connections=1, requests=1, warmup=0)
    ask = Ask(model="mock", max_tokens=1, extra={"mock": {"huge_bytes": 100 << 20}})
    result = runner.result(mock(mode="huge").url, plan, ask)
    assert (result.ok, result.requests) == (1, 1)
    assert any("too large" in note for note in result.notes)


def test_missing_usage_and_missing_done_are_said(mock: Start, runner: Runner) -> None:
    result = runner.result(mock(mode="no_usage").url, FOUR)
    assert "tpot" not in result.metrics and result.tokens_per_s is None
    assert any("no usage" in note for note in result.notes)
    result = runner.result(mock(mode="no_done").url, FOUR)
    assert any("[DONE]" in note for note in result.notes)


def test_usage_that_lies_is_not_believed(mock: Start, runner: Runner) -> None:
    result = runner.result(mock(mode="lie_usage", gap_ms=3).url, Plan(connections=4, requests=60))
    refused = result.metrics["tpot"].quantiles["p50"].refused
    assert refused is not None and "80" not in refused.remedy and "believed" in refused.reason


def test_several_events_a_read_refuse_gaps(mock: Start, runner: Runner) -> None:
    plan = Plan(connections=2, requests=30, warmup=4)
    result = runner.result(mock(mode="coalesced", gap_ms=20).url, plan)
    refused = result.metrics["gap"].quantiles["p50"].refused
    assert refused is not None and "several events" in refused.reason


def test_there_are_no_hidden_retries(mock: Start, runner: Runner) -> None:
    server = mock(mode="close_early")
    raw = runner.raw(server.url, FOUR)
    stats = runner.raw(server.url, FOUR, Ask(api="http", method="GET", extra={}))
    assert len(raw.measured) == 4 and stats.end is not None
    from preroll.cli.load_inputs import get
    from preroll.instruments.load.requests import parse_url

    assert b'"requests":4,' in get(parse_url(server.url), "/stats")[1]
