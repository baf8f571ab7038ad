"""Why a number is refused: each doubt has a reason and a remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import Raw

MAX_LAG_SHARE = 0.10
MIN_REACHED = 0.95
# A token is rarely under one event and rarely is an event over eight tokens (speculation included).
MAX_TOKENS_PER_EVENT = 8.0


@dataclass(frozen=True, slots=True)
class Doubt:
    reason: str
    remedy: str


def lag_doubt(lag_ms: float, value_ms: float, target_ms: float | None) -> Doubt | None:
    """The client was late by over 10 % of what it measured (of the target, if there is one)."""
    base, name = (value_ms, "the value") if target_ms is None else (target_ms, "the SLO")
    if lag_ms <= MAX_LAG_SHARE * base:
        return None
    reason = f"client lag p99 {lag_ms:.2f} ms exceeds 10 % of {name}"
    return Doubt(reason, "fewer streams per client, or cores of its own for the client")


def run_doubts(raw: Raw, plan: Plan) -> list[Doubt]:
    """Doubts about the run as a whole: it was not the load that was asked for."""
    if raw.end is None:
        return [Doubt("the client was killed before it said how late it was", "run it again")]
    doubts = []
    limited = raw.end["failures"].get("client_limit", 0)
    if limited:
        reason = f"{limited} arrivals were not sent: too many were in flight already"
        doubts.append(Doubt(reason, "a lower rate: the server does not keep up with this one"))
    doubts += _below_rate(raw, plan) + _below_connections(raw, plan)
    return doubts


def _below_rate(raw: Raw, plan: Plan) -> list[Doubt]:
    if plan.rate is None or plan.ramp_to is not None or len(raw.measured) < 2 or plan.calls > 1:
        return []
    starts = sorted(r["started_ns"] for r in raw.measured)
    span_s = (starts[-1] - starts[0]) / 1e9
    reached = (len(starts) - 1) / span_s if span_s else math.inf
    # An arrival process that is random is off its rate by chance, the more so the shorter it is.
    spread = 0.0 if plan.arrivals == "constant" else 3 * plan.cv / math.sqrt(len(starts))
    if reached >= plan.rate * min(MIN_REACHED, 1 - spread):
        return []
    reason = f"offered rate not reached: {reached:.3g} of {plan.rate:g} runs/s were sent"
    return [Doubt(reason, "a lower rate, or more than one client")]


def _below_connections(raw: Raw, plan: Plan) -> list[Doubt]:
    if plan.connections is None or plan.ramp_to is not None or plan.think_s > 0:
        return []
    assert raw.end is not None
    mean = raw.end["mean_in_flight"]
    if raw.end["reason"] == "interrupted" or mean >= MIN_REACHED * plan.connections:
        return []
    reason = f"in flight below what was asked: {mean:.1f} of {plan.connections} on average"
    remedy = "look at the failures first; or more requests, so that the start weighs less"
    return [Doubt(reason, remedy)]


def usage_doubt(raw: Raw) -> list[Doubt]:
    """Token counts that cannot be: fewer than events, or far more."""
    streams = [r for r in raw.ok if r["completion_tokens"] and r["content_events"] > 1]
    events = sum(r["content_events"] for r in streams)
    tokens = sum(r["completion_tokens"] for r in streams)
    if not events or events <= tokens <= MAX_TOKENS_PER_EVENT * events:
        return []
    reason = f"usage claims {tokens} tokens in {events} content events: it cannot be believed"
    return [Doubt(reason, "use the gap (per chunk), or ask the server's own metrics")]
