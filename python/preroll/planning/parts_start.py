"""Parts 1 to 3 of a plan: the start bill, the transfer floor, how often a start is paid."""

from __future__ import annotations

from preroll.core import Preparedness, Wait
from preroll.planning.catalogue import TierRate, tiers
from preroll.planning.formulas import coldstart, start, transfer
from preroll.planning.report import Line, Part, per_hour, percent, plural, seconds, size
from preroll.planning.sizing import Sizing

TIMEOUTS_S = (60.0, 300.0, 600.0, 1800.0)
FEW_GAPS = 30


def start_bill(sizing: Sizing) -> Part:
    ask = sizing.ask
    weights = ask.deployment.shape.weight_bytes
    measured = ask.measured("start")
    lines = []
    for level in Preparedness:
        bill = start.bill(level, weights)
        total = start.total_s(bill)
        waits = " + ".join(f"{wait} {seconds(bill[wait])}" for wait in Wait if bill[wait])
        seen = measured if level is ask.preparedness else None
        name = level.value.replace("_", " ")
        lines.append(Line(name, f"{seconds(total)} = {waits}", total, "s", measured=seen))
    best, worst = lines[-1].value, lines[0].value
    assert best is not None and worst is not None
    lines.append(Line("worst against best", f"{worst / best:.1f} ×", worst / best))
    return Part(
        "start_bill",
        "Start bill",
        "node + image + init + fetch + load + compile + warm",
        f"weights {size(weights)} ({ask.deployment.shape.precision}); stage times of the reference"
        " bill (120, 70, 5, bytes/1 GB/s, bytes/9.4 GB/s, 60, 8 s), restored graphs 6 s",
        lines,
        "waits one after another; your own stage times replace these: preroll starts --run 10",
    )


def transfer_floor(sizing: Sizing) -> Part:
    d = sizing.ask.deployment
    lines = [_tier(t, d.shape.weight_bytes, d.num_devices) for t in tiers()]
    lines.append(
        _tier(
            TierRate("link", "host link at its peak", d.device.host_bandwidth, False, ""),
            d.shape.weight_bytes,
            d.num_devices,
        )
    )
    return Part(
        "transfer",
        "Transfer floor",
        "bytes / bandwidth; per-device links carry one shard each",
        f"weights {size(d.shape.weight_bytes)} over {plural(d.num_devices, 'device')}",
        lines,
        "a floor: latency, deserialisation and shared links only add; threads help on some storage"
        " and hurt on other: measure it",
    )


def _tier(tier: TierRate, weights: float, devices: int) -> Line:
    links = 1 if tier.shared else devices
    floor = transfer.floor_s(weights, tier.bandwidth, links)
    at = f"at {size(tier.bandwidth)}/s" + (f" × {links}" if links > 1 else "")
    return Line(tier.name, f"{seconds(floor)} {at}", floor, "s")


def idle_gaps(arrival_gaps_s: tuple[float, ...], service_s: float) -> tuple[float, ...]:
    """Gaps between the end of all work and the next arrival, from gaps between arrivals.

    Each request is taken to last `service_s`; requests that overlap make one busy period.
    """
    idle, now, busy_until = [], 0.0, service_s
    for gap in arrival_gaps_s:
        now += gap
        if now > busy_until:
            idle.append(now - busy_until)
        busy_until = max(busy_until, now + service_s)
    return tuple(idle)


def cold_starts(sizing: Sizing) -> Part:
    """From the user's own gaps when there are any; else Poisson, and named so."""
    if len(sizing.ask.traffic.gaps_s) > 0:
        return _empirical(sizing)
    return _poisson(sizing)


def _empirical(sizing: Sizing) -> Part:
    traffic, cost = sizing.ask.traffic, sizing.start_s()
    idle = idle_gaps(tuple(traffic.gaps_s), sizing.service_s)
    requests, span_h = len(traffic.gaps_s), sum(traffic.gaps_s) / 3600.0
    lines: list[Line] = []
    if idle:
        gaps = coldstart.Gaps(idle)
        best = gaps.best(cost)
        optimum = gaps.offline_optimum_s(cost)
        lines.extend(
            _timeout_line(gaps, timeout, cost, requests, span_h, best.idle_timeout_s)
            for timeout in sorted({*TIMEOUTS_S, cost, best.idle_timeout_s})
        )
        over = best.cost_s / optimum if optimum else 1.0
        text = f"{seconds(best.idle_timeout_s)} ({over:.2f} × the cost of knowing each gap)"
        lines.append(Line("cheapest idle time-out", text, best.idle_timeout_s, "s"))
    else:
        lines.append(Line("no idle gap", "requests overlap throughout: it never goes cold", 0.0))
    few = (
        f"; only {plural(len(idle), 'idle gap')}: read as anecdote" if len(idle) < FEW_GAPS else ""
    )
    return Part(
        "cold_starts",
        "Cold starts against the idle time-out (your own gaps)",
        "cost(T) = Σ min(gap, T) + start × #{gap > T}",
        f"{plural(requests, 'gap')} between arrivals from {traffic.source}, {len(idle)} idle;"
        f" a start costs {seconds(cost)}",
        lines,
        f"the past repeats itself; one replica; nothing beyond the longest gap is known{few}",
    )


def _timeout_line(
    gaps: coldstart.Gaps,
    timeout: float,
    start_s: float,
    requests: int,
    span_h: float,
    best: float,
) -> Line:
    cost = gaps.cost(timeout, start_s)
    share, rate = cost.cold_starts / requests, cost.cold_starts / max(span_h, 1e-9)
    marks = [n for n, t in (("cost of a start", start_s), ("cheapest", best)) if t == timeout]
    name = f"T = {seconds(timeout)}" + (f" ({', '.join(marks)})" if marks else "")
    text = (
        f"{percent(share)} of requests cold, {per_hour(rate)}; idle {seconds(cost.idle_s)} +"
        f" starts {seconds(cost.cold_starts * start_s)} = {seconds(cost.cost_s)}"
    )
    return Line(name, text, share)


def _poisson(sizing: Sizing) -> Part:
    traffic, cost = sizing.ask.traffic, sizing.start_s()
    lines = []
    for timeout in sorted({*TIMEOUTS_S, cost}):
        share = coldstart.poisson_probability(traffic.rate, timeout)
        rate = coldstart.poisson_starts_per_s(traffic.rate, timeout) * 3600
        text = f"{percent(share)} of requests cold, {per_hour(rate)}"
        lines.append(Line(f"T = {seconds(timeout)}", text, share))
    worst, most = coldstart.worst_rate(600.0)
    text = f"{worst * 3600:.3g} requests/h make {most * 3600:.2g} cold starts/h at T = 10 min"
    lines.append(Line("worst rate", text, worst * 3600, "1/h"))
    return Part(
        "cold_starts",
        "Cold starts against the idle time-out (POISSON, assumed: give --trace or --access-log)",
        "P(cold) = exp(−λT), rate = λ·exp(−λT), worst at λ = 1/T",
        f"λ = {traffic.rate:g}/s ({traffic.source}); a start costs {seconds(cost)}",
        lines,
        "Poisson arrivals only: real endpoints are burstier, so this is optimistic for quiet"
        " ones; the time-out that costs least is then the cost of a start (ski rental, ≤ 2 ×)",
    )
