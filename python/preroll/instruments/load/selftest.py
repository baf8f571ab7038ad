"""The client's own error: the same load on a mock whose times are known, beside the result."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from preroll.instruments.load.client import Client, Mock
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import Raw, read
from preroll.instruments.load.requests import parse_url
from preroll.instruments.load.result import lag_ms, ttft_ms

TTFT_MS, GAP_MS, TOKENS = 100.0, 20.0, 50


@dataclass(frozen=True, slots=True)
class OwnError:
    """How far the client's figures were from the mock's truth, in milliseconds."""

    requests: int
    ttft_p50_error_ms: float
    ttft_p99_error_ms: float
    gap_p50_error_ms: float
    lag_p99_ms: float
    us_per_chunk: float

    def sentence(self) -> str:
        return (
            f"self-test, the same load on a mock with TTFT {TTFT_MS:g} ms and gap {GAP_MS:g} ms: "
            f"TTFT p50 off by {self.ttft_p50_error_ms:+.2f} ms, p99 by "
            f"{self.ttft_p99_error_ms:+.2f}, gap p50 by {self.gap_p50_error_ms:+.2f}; client lag "
            f"p99 {self.lag_p99_ms:.2f} ms, {self.us_per_chunk:.1f} µs per chunk"
        )


def self_test(plan: Plan) -> OwnError:
    """Runs the plan's load against the mock (a replay is cut to its first 1,000 arrivals)."""
    arrivals = None if plan.replay_s is None else plan.replay_s[:1000]
    least = 2 * (plan.connections or 1)
    plan = replace(plan, replay_s=arrivals, requests=max(300, least), seconds=None)
    body = {
        "model": "mock",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = {
        "path": "/v1/chat/completions",
        "headers": {"content-type": "application/json"},
        "body": json.dumps(body),
    }
    with tempfile.TemporaryDirectory() as folder, Mock(ttft_ms=TTFT_MS, gap_ms=GAP_MS) as mock:
        file = Path(folder) / "records.ndjson"
        with Client(plan.spec(parse_url(mock.url), [request], file)) as client:
            for _ in client:
                pass
        return judge(read(file))


def judge(raw: Raw) -> OwnError:
    first = [v for v in map(ttft_ms, raw.ok) if v is not None]
    gaps = [gap / 1e6 for r in raw.ok for gap in r["gaps_ns"]]
    events = sum(r["content_events"] for r in (*raw.measured, *raw.warmup))
    cpu_us = raw.end["cpu_ns"] / 1e3 if raw.end else math.nan
    return OwnError(
        requests=len(raw.ok),
        ttft_p50_error_ms=_rank(first, 0.5) - TTFT_MS,
        ttft_p99_error_ms=_rank(first, 0.99) - TTFT_MS,
        gap_p50_error_ms=_rank(gaps, 0.5) - GAP_MS,
        lag_p99_ms=lag_ms(raw),
        us_per_chunk=cpu_us / events if events else math.nan,
    )


def _rank(samples: Sequence[float], q: float) -> float:
    return sorted(samples)[max(0, math.ceil(q * len(samples)) - 1)] if samples else math.nan
