"""Parts 4 to 7 of a plan: spike, utilisation, KV capacity, speed against batch."""

from __future__ import annotations

from preroll.planning.formulas import decode, kv, queueing, retries, spike
from preroll.planning.report import Line, Part, percent, plural, seconds, size
from preroll.planning.sizing import LARGEST_BATCH, Sizing

CONTEXTS = (2048, 8192, 32768, 131072)
BATCHES = (1, 4, 16, 64, 256)
STRETCHES = (0.5, 0.8, 0.9, 0.95)


def spike_part(sizing: Sizing) -> Part:
    ask, start_s = sizing.ask, sizing.start_s()
    rate, each, ready = ask.traffic.rate * ask.spike, sizing.replica_rate, sizing.replicas
    inputs = (
        f"λ {ask.traffic.rate:g} → {rate:g}/s, {plural(ready, 'replica')} of μ = {each:.3g}/s,"
        f" start {seconds(start_s)}, client time-out {seconds(ask.timeout_s)}, {ask.retries}"
        " retries"
    )
    if rate <= ready * each:
        lines = [Line("no backlog", f"{ready * each:.3g}/s of capacity is above the spike", 0.0)]
    else:
        lines = _backlog_lines(sizing, rate)
    return Part(
        "spike",
        f"Spike of {ask.spike:g} × and what retries do",
        "peak = (λ−rμ)·Tc, recovered at Tc + peak/((r+a)μ−λ); metastable when dead work is served"
        " and λ·(1+retries) ≥ (r+a)·μ",
        inputs,
        lines,
        "fluid limit, every client retries at once; back-off softens it",
    )


def _backlog_lines(sizing: Sizing, rate: float) -> list[Line]:
    ask, start_s = sizing.ask, sizing.start_s()
    each, ready = sizing.replica_rate, sizing.replicas
    added = sizing.added_in_spike
    triangle = spike.backlog(rate, each, start_s, ready, added)
    event = retries.Spike(rate, each, start_s, ready, added)
    lines = [
        Line(
            f"patient clients, +{plural(added, 'replica')}",
            f"{triangle.peak:.0f} queued at the peak, recovered after"
            f" {seconds(triangle.recovered_s)}",
            triangle.peak,
        )
    ]
    horizon = 6.0 * triangle.recovered_s
    for drop, name in ((True, "abandoned work dropped"), (False, "abandoned work served")):
        clients = retries.Clients(ask.timeout_s, ask.retries, drop)
        lines.append(_retry_line(name, event, clients, horizon))
    return lines


def _retry_line(
    name: str, event: retries.Spike, clients: retries.Clients, horizon_s: float
) -> Line:
    seen = retries.outcome(event, clients, horizon_s)
    when = "never recovers" if seen.recovered_s is None else f"after {seconds(seen.recovered_s)}"
    text = f"{when}; {percent(seen.wasted)} of service wasted, {percent(seen.failed)} give up"
    if retries.is_metastable(event, clients):
        text += "; METASTABLE region" if seen.recovered_s is None else "; metastable if triggered"
    return Line(name, text, seen.recovered_s, "s")


def utilisation_part(sizing: Sizing) -> Part:
    t, slots = sizing.ask.traffic, sizing.max_concurrency
    rho = sizing.utilisation
    wait = queueing.mgk_wait_s(rho, sizing.service_s, t.cs, slots, t.ca)
    stretch = ", ".join(f"{queueing.mm1_stretch(r):.0f} × at {r:g}" for r in STRETCHES)
    factor = queueing.variance_factor(t.cs)
    measured = sizing.ask.measured("service", "service_time")
    lines = [
        Line("one server, M/M/1", f"time in system {stretch}"),
        Line(
            "variance factor (1+Cs²)/2",
            f"{factor:.3g} × exponential, {2 * factor:.3g} × fixed-length",
            factor,
            measured=measured,
        ),
        Line("utilisation target", f"{percent(rho)} of {slots} slots", rho),
        Line("mean wait there", seconds(wait), wait, "s"),
        Line(
            "target concurrency per replica",
            f"{max(1.0, rho * slots):.3g} in flight",
            max(1.0, rho * slots),
        ),
    ]
    return Part(
        "utilisation",
        "Utilisation target",
        "W = ErlangC(ρ,k)·S/(k(1−ρ))·(Ca²+Cs²)/2; p95 of it ≤ TTFT target − prompt",
        f"S = {seconds(sizing.service_s)}, Cs = {t.cs:.3g}, Ca = {t.ca:.3g} ({t.source}), k ="
        f" {slots}, p95 wait ≤ {seconds(sizing.wait_limit_s)}",
        lines,
        "steady state, FIFO, independent requests; approximate above Cs ≈ 2",
    )


def kv_part(sizing: Sizing) -> Part:
    d, pool = sizing.ask.deployment, sizing.pool_bytes
    layout, dtype, tp = d.shape.layout, d.kv_dtype, d.kv_split
    per_token = kv.token_bytes(layout, dtype)
    held = kv.token_bytes(layout, dtype, tp)
    fixed = kv.fixed_bytes(layout, dtype)
    lines = [
        Line("per token", f"{per_token:,.0f} B" + _copies(held, per_token), per_token, "B"),
        Line("pool", f"{size(pool)} on {plural(d.num_devices, 'device')}", pool, "B"),
    ]
    window = kv.window_bytes(layout, dtype)
    if window:
        lines.append(Line("windowed layers, per token", f"{window:,.0f} B, bounded", window, "B"))
    if fixed:
        lines.append(Line("state per sequence", size(fixed), fixed, "B"))
    if held:
        tokens = pool / held
        lines.append(Line("tokens", f"{tokens:,.0f} of unbounded context", tokens))
    contexts = [c for c in CONTEXTS if c <= d.shape.max_context] or [d.shape.max_context]
    for context in contexts:
        fit = kv.capacity_sessions(layout, pool, context, dtype, tp, d.kv_parts)
        lines.append(Line(f"sessions of {context:,} tokens", f"{fit:,}", fit))
    return Part(
        "kv",
        "KV capacity",
        "Σ layers·heads·elements·bytes per token; pool = 0.9·memory − weights − workspace",
        f"{d.num_devices} × {size(d.device.memory)}, weights {size(d.shape.weight_bytes)},"
        f" workspace {size(d.workspace())}, KV in {dtype}, tensor parallel {tp}",
        lines,
        "whole blocks; shared prefixes let more sessions in; recurrent state in 16 bits",
    )


def _copies(held: float, per_token: float) -> str:
    times = held / per_token if per_token else 1.0
    return f", held {times:g} × (fewer heads than devices)" if times > 1.0 else ""


def speed_part(sizing: Sizing) -> Part:
    ask, d, t = sizing.ask, sizing.ask.deployment, sizing.ask.traffic
    lines = [_batch_line(sizing, batch) for batch in BATCHES]
    lines.append(_limit_line(sizing))
    lines.append(
        Line(
            "first token, unqueued",
            f"{seconds(sizing.first_token.value_s)} ({seconds(sizing.first_token.low_s)} to"
            f" {seconds(sizing.first_token.high_s)})",
            sizing.first_token.value_s,
            "s",
            sizing.first_token.low_s,
            sizing.first_token.high_s,
            ask.measured("ttft"),
        )
    )
    basis = sizing.first_token.basis
    return Part(
        "speed",
        "Speed of a stream against the batch",
        "floor: (W + B·c·k)/BW and B·2P/peak; modelled: physics, corrected per engine and device by"
        " the nearest measurements",
        f"{d.shape.name} {d.shape.precision} on {d.num_devices} × {d.device.name}, {d.engine},"
        f" {t.isl:.0f} in, {t.osl:.0f} out; 90 % interval from held-out errors by {basis}",
        lines,
        _speed_validity(basis),
    )


def _speed_validity(basis: str) -> str:
    note = {
        "model": "; this model was never measured: the interval is that of models held out",
        "device": "; this device was never measured: the interval is that of devices held out",
    }
    plain = (
        "closed loop, no shared prefix, no speculative decoding; a mean over tokens: single gaps"
    )
    return f"{plain} vary with the prefills in the batch" + note.get(basis, "")


def _batch_line(sizing: Sizing, batch: int) -> Line:
    d, t = sizing.ask.deployment, sizing.ask.traffic
    e = sizing.tpot(batch)
    context = t.isl + t.osl / 2
    held = kv.sequence_bytes(d.shape.layout, context, d.kv_dtype, d.kv_split)
    floor = decode.memory_step_s(sum(d.shape.read_bytes(batch)), batch * held, d.bandwidth)
    compute = decode.compute_step_s(batch, d.shape.parameters.active, d.flops)
    measured = sizing.ask.measured("tpot", "itl") if batch == 1 else None
    waits = f"; {sizing.kv_sessions} fit, the rest wait" if batch > sizing.kv_sessions else ""
    text = (
        f"{1 / e.value_s:.3g} tokens/s each ({1 / e.high_s:.3g} to {1 / e.low_s:.3g}),"
        f" {batch / e.value_s:,.0f} together; memory floor {seconds(floor)}, compute"
        f" {seconds(compute)}{waits}"
    )
    return Line(f"batch {batch}", text, e.value_s, "s", e.low_s, e.high_s, measured)


def _limit_line(sizing: Sizing) -> Line:
    target = sizing.ask.slo.itl_p95_s
    if target is None:
        return Line("batch limit", "no ITL target given: the KV pool and the engine bound it")
    sure, expected, best = (_bound(b) for b in sizing.speed_limit)
    text = f"{sure} surely (95 %), {expected} expected, {best} at best, at ITL {seconds(target)}"
    return Line("batch limit", text, float(sizing.speed_limit[0]))


def _bound(batch: int) -> str:
    return f"over {batch}" if batch >= LARGEST_BATCH else str(batch)
