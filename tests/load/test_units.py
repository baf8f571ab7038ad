"""Statistics, plans, traces, reports: no process needed."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from preroll.errors import InputError
from preroll.instruments.intervals import (
    bootstrap_difference,
    design_effect,
    pool_monotone,
    quantile_interval,
    share_interval,
)
from preroll.instruments.load.compare import compare, table
from preroll.instruments.load.page import page
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import Raw, read
from preroll.instruments.load.report import markdown
from preroll.instruments.load.requests import Ask, parse_url, spill, template
from preroll.instruments.load.result import Targets, is_within, summarise
from preroll.instruments.load.text import prompts
from preroll.instruments.load.traces import read_trace

LAG = {"p99": 0.0}


def record(ttft_ms: float, **changes: Any) -> dict[str, Any]:
    base = {
        "type": "request", "warmup": False, "run": 0, "call": 0, "intended_ns": 0,
        "started_ns": 0, "first_byte_ns": 1, "first_content_ns": round(ttft_ms * 1e6),
        "end_ns": round(ttft_ms * 1e6) + 63_000_000, "failure": None, "content_events": 64,
        "content_reads": 64, "multi_reads": 0, "max_gap_ns": 1_000_000, "gaps_ns": [1_000_000] * 63,
        "completion_tokens": 64, "done_seen": True, "oversize_events": 0, "status": 200,
    }  # fmt: skip
    return base | changes


def raw_of(records: list[dict[str, Any]], lag_ms: float = 0.0, **end: Any) -> Raw:
    lag = {"p99": lag_ms * 1e6}
    summary = {
        "type": "end", "reason": "complete", "timer_lag_ns": lag, "read_lag_ns": LAG,
        "send_lag_ns": LAG, "failures": {}, "mean_in_flight": 4.0, "cpu_ns": 1, "connections": 4,
    }  # fmt: skip
    return Raw((), tuple(records), summary | end)


PLAN = Plan(connections=4, requests=400, warmup=0)
MANY = [record(100 + i % 40) for i in range(400)]


def test_trusted_quantiles_have_intervals_around_them() -> None:
    result = summarise(raw_of(MANY), PLAN, Targets())
    for quantity in result.metrics["ttft"].quantiles.values():
        assert quantity.value is not None and quantity.low is not None
        assert quantity.low <= quantity.value <= (quantity.high or 0)
    assert result.metrics["tpot"].quantiles["p50"].value == pytest.approx(1.0)


def test_a_late_client_is_refused_by_the_value_or_by_the_slo() -> None:
    late = raw_of(MANY, lag_ms=20.0)
    refused = summarise(late, PLAN, Targets()).metrics["ttft"].quantiles["p50"].refused
    assert refused is not None and "lag" in refused.reason and refused.remedy
    # An SLO of 800 ms allows 80 ms of lateness.
    kept = summarise(late, PLAN, Targets(ttft_ms=800.0)).metrics["ttft"].quantiles["p50"]
    assert kept.value is not None


@pytest.mark.parametrize(("count", "label"), [(5, "p50"), (58, "p95"), (298, "p99")])
def test_tails_without_samples_are_refused(count: int, label: str) -> None:
    def quantity(n: int) -> Any:
        return summarise(raw_of(MANY[:n]), PLAN, Targets()).metrics["e2e"].quantiles[label]

    assert quantity(count).refused is not None
    assert quantity(count + 1).value is not None


def test_a_load_below_what_was_asked_is_refused() -> None:
    low = raw_of(MANY, mean_in_flight=2.0)
    refused = summarise(low, PLAN, Targets()).metrics["ttft"].quantiles["p50"].refused
    assert refused is not None and "2.0 of 4" in refused.reason
    spread = [record(100, started_ns=i * 10_000_000) for i in range(400)]
    plan = Plan(rate=200.0, arrivals="constant", requests=400)
    refused = summarise(raw_of(spread), plan, Targets()).metrics["e2e"].quantiles["p50"].refused
    assert refused is not None and "rate not reached" in refused.reason
    exact = Plan(rate=100.0, arrivals="constant", requests=400)
    assert summarise(raw_of(spread), exact, Targets()).metrics["e2e"].quantiles["p50"].value


def test_goodput_counts_failures_as_misses() -> None:
    failed = record(1, failure={"kind": "closed", "detail": ""})
    result = summarise(raw_of([*MANY[:3], failed]), PLAN, Targets(ttft_ms=500.0))
    assert result.within_slo == 0.75
    assert not is_within(record(10, max_gap_ns=90_000_000), Targets(gap_ms=80.0))
    assert not is_within(record(10, first_content_ns=None), Targets(ttft_ms=80.0))


def test_reports_name_refusals_and_the_page_is_self_contained() -> None:
    raw = raw_of(MANY[:50], lag_ms=50.0)
    result = summarise(raw, PLAN, Targets())
    text = markdown(result, "a <title>")
    assert "Refused:" in text and "Remedy:" in text
    html = page(result, raw, "a <title>")
    assert "a &lt;title&gt;" in html and "<svg" in html and "src=" not in html


def test_compare_finds_a_shift_and_only_a_shift() -> None:
    rng = random.Random(1)
    first = raw_of([record(100 + rng.gauss(0, 5)) for _ in range(300)])
    same = raw_of([record(r["first_content_ns"] / 1e6) for r in reversed(first.measured)])
    slow = raw_of([record(104 + rng.gauss(0, 5)) for _ in range(300)])
    verdicts = {d.name: d.verdict for d in compare(first, slow)}
    assert verdicts["ttft p50"] == "slower"
    assert {d.name: d.verdict for d in compare(first, same)}["ttft p50"] == "no difference shown"
    assert "ttft p50" in table(compare(first, slow))
    with pytest.raises(InputError, match="too few"):
        compare(first, raw_of(MANY[:3]))


def test_a_cut_last_line_is_left_out_and_damage_before_it_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "r.ndjson"
    good = '{"type": "request", "warmup": false, "failure": null}\n'
    file.write_text(good + '{"type": "requ')
    assert len(read(file).measured) == 1 and read(file).end is None
    file.write_text('{"type": "requ\n' + good)
    with pytest.raises(InputError, match=":1:"):
        read(file)


def test_urls_and_templates(tmp_path: Path) -> None:
    assert parse_url("http://127.0.0.1:80").is_loopback
    assert not parse_url("http://192.0.2.1:80/v1").is_loopback
    assert parse_url("unix:/s").is_loopback and parse_url("http://h:1/p?q=1").path == "/p?q=1"
    tls = parse_url("https://example.org").tls
    assert tls is not None and tls.server_name == "example.org" and not tls.insecure
    with pytest.raises(InputError, match="allowed"):
        parse_url("ftp://example.org")
    server = parse_url("http://127.0.0.1:1")
    assert template(server, Ask(api="embeddings"), "x")["path"] == "/v1/embeddings"
    audio = tmp_path / "a.wav"
    audio.write_bytes(b"\0\xff")
    [request] = spill([template(server, Ask(api="transcriptions"), "", audio)], tmp_path)
    assert b"\0\xff" in Path(request["body_file"]).read_bytes() and "payload" not in request
    with pytest.raises(InputError, match="allowed"):
        template(server, Ask(api="nonsense"), "x")
    assert len({p.split()[0:3].__repr__() for p in prompts(20, 50)}) == 20


def test_traces_of_several_kinds_are_read(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )
    first, second = read_trace(file)
    assert (first.at_s, first.input_tokens, second.output_tokens) == (0.0, 4808, 8)
    assert second.at_s == pytest.approx(0.052, abs=1e-6)
    assert read_trace(file, speed=2.0)[1].at_s == pytest.approx(0.026, abs=1e-6)
    file.write_text('{"t_ns": 1000000000}\n{"t_ns": 3000000000}\n')
    assert [a.at_s for a in read_trace(file)] == [0.0, 2.0]
    file.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="allowed times"):
        read_trace(file)


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections": 1, "rate": 1.0}, {}, {"connections": 0}, {"rate": -1.0},
        {"connections": 1, "ramp_to": 3}, {"rate": 1.0, "arrivals": "burst"},
    ],
)  # fmt: skip
def test_plans_that_cannot_be_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Plan(**wrong)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = random.Random(7)
    hits = shares = 0
    for _ in range(300):
        samples = [rng.expovariate(1.0) for _ in range(120)]
        found = quantile_interval(samples, 0.9)
        hits += found.low <= math.log(10) <= found.high
        share = share_interval(sum(rng.random() < 0.1 for _ in range(80)), 80)
        shares += share.low <= 0.1 <= share.high
    assert hits >= 275 and shares >= 270


def test_clustered_samples_have_wider_intervals() -> None:
    samples = [float(i) for i in range(1000)]
    alone, grouped = (quantile_interval(samples, 0.5, num_clusters=n) for n in (None, 10))
    assert grouped.high - grouped.low > 5 * (alone.high - alone.low)


def test_pooling_is_monotone_and_keeps_what_is_monotone_already() -> None:
    assert pool_monotone([1.0, 3.0, 2.0, 4.0], [1, 1, 1, 1]) == [1.0, 2.5, 2.5, 4.0]
    assert pool_monotone([3.0, 1.0], [1, 3]) == [1.5, 1.5]
    assert pool_monotone([0.1, 0.2], [5, 5]) == [0.1, 0.2]


def test_the_design_effect_sees_runs_of_equal_outcomes() -> None:
    rng = random.Random(3)
    independent = [rng.random() < 0.3 for _ in range(2000)]
    runs = [outcome for outcome in independent[:200] for _ in range(10)]
    assert design_effect(independent) < 3 < design_effect(runs, num_batches=20)
    assert design_effect([False] * 100) == 1.0


def test_the_bootstrap_covers_no_difference_where_there_is_none() -> None:
    rng = random.Random(11)
    covered = 0
    for seed in range(60):
        a, b = ([rng.gauss(0, 1) for _ in range(60)] for _ in range(2))
        found = bootstrap_difference(a, b, lambda s: sorted(s)[len(s) // 2], 200, seed)
        covered += found.low <= 0 <= found.high
    assert covered >= 50


def test_the_bootstrap_is_reproducible_and_centred() -> None:
    rng = random.Random(5)
    a, b = ([rng.gauss(m, 1) for _ in range(200)] for m in (0.0, 1.0))
    mean = lambda s: sum(s) / len(s)  # noqa: E731
    first, again = (bootstrap_difference(a, b, mean, seed=1) for _ in range(2))
    assert first == again and first.low < 1.0 < first.high
