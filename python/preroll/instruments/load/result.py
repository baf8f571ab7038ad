"""What a run was worth: quantiles with intervals, or the reason why there is none.

TTFT: intended send to first non-empty content (reasoning counts, a role alone does not). Gap: time
between two reads that carried content. TPOT: (end − first content)/(tokens − 1), only with
server-reported tokens. E2E: intended send to the end. Audible: intended send to the first sample
above −40 dB. Still: how long playing would have stood still. Tail: last audio sent to the last
message. All in milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from preroll.instruments.intervals import quantile_interval
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import Raw
from preroll.instruments.load.trust import Doubt, lag_doubt, run_doubts, usage_doubt
from preroll.quantiles import samples_needed

Json = dict[str, Any]
QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number with its interval, or (`value` None) the doubt that forbids it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    refused: Doubt | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """A distribution: how many samples, the mean, quantiles by name."""

    count: int
    quantiles: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that is said about a run; `to_json` gives it in one document."""

    plan: str
    requests: int
    ok: int
    failures: Mapping[str, int]
    warmup: int
    warmup_ttft_p50_ms: float | None
    rate_per_s: float
    tokens_per_s: float | None
    interrupted: bool
    client: Mapping[str, float]
    metrics: Mapping[str, Metric]
    within_slo: float | None = None
    runs: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> Json:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Targets:
    """Service levels in milliseconds; None is none."""

    ttft_ms: float | None = None
    gap_ms: float | None = None
    e2e_ms: float | None = None
    audible_ms: float | None = None
    still_ms: float | None = None
    tail_ms: float | None = None

    def of(self, metric: str) -> float | None:
        value: float | None = getattr(self, f"{metric}_ms", None)
        return value

    def text(self) -> str:
        """All of them in one line."""
        named = ((name.removesuffix("_ms"), value) for name, value in asdict(self).items())
        return ", ".join(f"{name} ≤ {value:g} ms" for name, value in named if value is not None)


def ms(record: Mapping[str, Any], start: str, end: str) -> float | None:
    first, last = record[start], record[end]
    return None if first is None or last is None else (last - first) / 1e6


def ttft_ms(record: Mapping[str, Any]) -> float | None:
    return ms(record, "intended_ns", "first_content_ns")


def e2e_ms(record: Mapping[str, Any]) -> float | None:
    return ms(record, "intended_ns", "end_ns")


def audible_ms(record: Mapping[str, Any]) -> float | None:
    """Intended send to the first audible sample."""
    return ms(record, "intended_ns", "first_audible_ns") if "first_audible_ns" in record else None


def still_ms(record: Mapping[str, Any]) -> float | None:
    """How long in all playing, begun with the first content, would have stood still."""
    return record["still_ns"] / 1e6 if "still_ns" in record else None


def tail_ms(record: Mapping[str, Any]) -> float | None:
    """Last audio sent to the last message: what a speaker waits for the final words."""
    return ms(record, "audio_end_ns", "end_ns") if record.get("audio_end_ns") else None


def met_closed(record: Mapping[str, Any]) -> bool:
    """Whether the request went out on a kept connection that the server had closed."""
    failure = record["failure"]
    if failure is None or failure["kind"] not in ("closed", "reset"):
        return False
    return bool(record.get("reused")) and record["first_byte_ns"] is None


def stale_note(count: int) -> str:
    return (
        f"{count} requests failed because the server had closed a connection that it announced to "
        "keep: --new-connections gives every request its own"
    )


def tpot_ms(record: Mapping[str, Any]) -> float | None:
    tokens, first = record["completion_tokens"], record["first_content_ns"]
    if tokens is None or tokens < 2 or first is None:
        return None
    return float((record["end_ns"] - first) / 1e6 / (tokens - 1))


def summarise(raw: Raw, plan: Plan, targets: Targets) -> Result:
    """Statistics over the measured requests that succeeded; failures are counted by kind."""
    lag = lag_ms(raw)
    doubts = run_doubts(raw, plan)
    samples: dict[str, list[float]] = {
        "ttft": _values(raw.ok, ttft_ms),
        "gap": [gap / 1e6 for r in raw.ok for gap in r.get("gaps_ns", ())],
        "tpot": _values(raw.ok, tpot_ms),
        "e2e": _values(raw.ok, e2e_ms),
        "audible": _values(raw.ok, audible_ms),
        "still": _values(raw.ok, still_ms),
        "tail": _values(raw.ok, tail_ms),
    }
    metrics = {}
    for name, values in samples.items():
        if values:
            more = _metric_doubt(name, raw)
            clusters = len(raw.ok) if name == "gap" else None
            judge = _Judge(doubts or more, lag, targets.of(name), clusters)
            metrics[name] = Metric(len(values), judge.quantiles(values))
    warm = _values([r for r in raw.warmup if r["failure"] is None], ttft_ms)
    span = _span_s(raw)
    return Result(
        plan=plan.sentence(),
        requests=len(raw.measured),
        ok=len(raw.ok),
        failures=dict(Counter(r["failure"]["kind"] for r in raw.measured if r["failure"])),
        warmup=len(raw.warmup),
        warmup_ttft_p50_ms=sorted(warm)[len(warm) // 2] if warm else None,
        rate_per_s=len(raw.ok) / span if span else 0.0,
        tokens_per_s=_tokens(raw) / span if span and _tokens(raw) else None,
        interrupted=raw.end is None or raw.end["reason"] == "interrupted",
        client={"lag_p99_ms": lag} | _client(raw),
        metrics=metrics,
        within_slo=_within(raw, targets),
        runs=_runs(raw, plan, targets),
        notes=tuple(_notes(raw)),
    )


def _values(
    records: Sequence[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], float | None]
) -> list[float]:
    return [v for v in map(of, records) if v is not None]


@dataclass(frozen=True, slots=True)
class _Judge:
    """Turns samples into quantiles, or refuses them."""

    doubts: Sequence[Doubt]
    lag_ms: float
    target_ms: float | None
    clusters: int | None

    def quantiles(self, values: Sequence[float]) -> dict[str, Quantity]:
        return {name: self._one(values, name, q) for name, q in QUANTILES.items()}

    def _one(self, values: Sequence[float], name: str, q: float) -> Quantity:
        if self.doubts:
            return Quantity(refused=self.doubts[0])
        needed = samples_needed(q) if q > 0.5 else 6
        if len(values) < needed:
            reason = f"{name} of {len(values)} samples; it needs {needed}"
            return Quantity(refused=Doubt(reason, f"--requests {needed} or more"))
        found = quantile_interval(values, q, num_clusters=self.clusters)
        late = lag_doubt(self.lag_ms, found.value, self.target_ms)
        # Nothing stood still: a client that is late would have made it longer, not shorter.
        if late and found.value > 0:
            return Quantity(refused=late)
        return Quantity(found.value, found.low, found.high)


def _metric_doubt(name: str, raw: Raw) -> list[Doubt]:
    if name == "gap":
        reads = sum(r["content_reads"] for r in raw.ok)
        several = sum(r["multi_reads"] for r in raw.ok)
        if reads and several > 0.05 * reads:
            reason = (
                f"{several / reads:.0%} of reads carried several events: these are gaps of reads"
            )
            return [Doubt(reason, "fewer streams, or a client nearer to the server")]
    return usage_doubt(raw) if name == "tpot" else []


def lag_ms(raw: Raw) -> float:
    """The client's own lateness, p99: of its timers, its reads and its sends."""
    if raw.end is None:
        return float("inf")
    kinds = ("timer_lag_ns", "read_lag_ns", "send_lag_ns")
    return max(float(raw.end[kind]["p99"]) for kind in kinds) / 1e6


def _client(raw: Raw) -> dict[str, float]:
    if raw.end is None:
        return {}
    events = sum(r["content_events"] for r in (*raw.measured, *raw.warmup))
    cost = raw.end["cpu_ns"] / 1e3 / events if events else 0.0
    return {"cpu_us_per_event": cost, "connections": float(raw.end["connections"])}


def _span_s(raw: Raw) -> float:
    if not raw.measured:
        return 0.0
    start = min(r["intended_ns"] for r in raw.measured)
    return float(max(r["end_ns"] for r in raw.measured) - start) / 1e9


def _tokens(raw: Raw) -> int:
    return sum(r["completion_tokens"] or 0 for r in raw.ok)


def is_within(record: Mapping[str, Any], targets: Targets) -> bool:
    """Whether a request succeeded and met every target that is set."""
    if record["failure"] is not None:
        return False
    found = {"ttft": ttft_ms(record), "e2e": e2e_ms(record), "gap": record["max_gap_ns"] / 1e6}
    found |= {"audible": audible_ms(record), "still": still_ms(record), "tail": tail_ms(record)}
    for name, value in found.items():
        limit = targets.of(name)
        if limit is not None and (value is None or value > limit):
            return False
    return True


def _within(raw: Raw, targets: Targets) -> float | None:
    if targets == Targets() or not raw.measured:
        return None
    return sum(is_within(r, targets) for r in raw.measured) / len(raw.measured)


def _runs(raw: Raw, plan: Plan, targets: Targets) -> dict[str, float]:
    """For runs of n calls: the share with a slow call, and 1 − pⁿ if calls were independent."""
    if plan.calls < 2 or not raw.ok:
        return {}
    limit = targets.ttft_ms
    if limit is None:
        values = sorted(_values(raw.ok, ttft_ms))
        limit = values[int(0.9 * (len(values) - 1))] if values else 0.0
    calls: dict[int, list[bool]] = {}
    for record in raw.ok:
        calls.setdefault(record["run"], []).append((ttft_ms(record) or 0.0) > limit)
    whole = [c for c in calls.values() if len(c) == plan.calls]
    if not whole:
        return {}
    slow = sum(sum(c) for c in whole) / (len(whole) * plan.calls)
    return {
        "runs": len(whole),
        "slow_above_ms": limit,
        "share_of_calls_slow": slow,
        "share_of_runs_with_a_slow_call": sum(any(c) for c in whole) / len(whole),
        "expected_if_independent": 1 - (1 - slow) ** plan.calls,
    }


def _notes(raw: Raw) -> list[str]:
    notes = []
    streams = [r for r in raw.ok if r["content_events"] > 1]
    without = sum(r["completion_tokens"] is None for r in raw.ok)
    if without:
        notes.append(f"{without} answers reported no usage: tokens are not counted for them")
    if streams and not all(r["done_seen"] for r in streams):
        missing = sum(not r["done_seen"] for r in streams)
        notes.append(f"{missing} streams ended without [DONE]")
    stale = sum(map(met_closed, raw.measured))
    if stale:
        notes.append(stale_note(stale))
    oversize = sum(r["oversize_events"] for r in raw.measured)
    if oversize:
        notes.append(f"{oversize} events were too large to look into (over 4 MiB)")
    if raw.end is None:
        notes.append("the client was killed: there is no summary of its lateness, so no quantile")
    return notes
