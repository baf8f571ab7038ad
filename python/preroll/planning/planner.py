"""`plan(ask)`: nine parts, what follows from them, and the app file to paste."""

from __future__ import annotations

import json

from preroll.errors import InputError
from preroll.planning import parts_load, parts_risk, parts_start
from preroll.planning.formulas.coldstart import Gaps
from preroll.planning.inputs import Ask
from preroll.planning.levers import levers
from preroll.planning.report import Line, Plan, percent, plural, seconds, size
from preroll.planning.sizing import LARGEST_BATCH, Sizing

MOST_REPLICAS = 10_000
HOUR = 3600.0


def plan(ask: Ask) -> Plan:
    """The whole page. InputError when the model does not fit or a target cannot be met at all."""
    sizing = Sizing(ask)
    _check_fit(sizing)
    parts = (
        parts_start.start_bill(sizing),
        parts_start.transfer_floor(sizing),
        parts_start.cold_starts(sizing),
        parts_load.spike_part(sizing),
        parts_load.utilisation_part(sizing),
        parts_load.kv_part(sizing),
        parts_load.speed_part(sizing),
        parts_risk.determinism(sizing),
        parts_risk.many_calls(sizing),
    )
    return Plan(
        header=_header(sizing),
        parts=parts,
        conclusions=tuple(_conclusions(sizing)),
        levers=levers(sizing),
        app_file=app_file(sizing),
        warnings=tuple(_warnings(sizing)),
    )


def _check_fit(sizing: Sizing) -> None:
    """The pool, with the reason why more nodes do not help where they were offered."""
    try:
        _ = sizing.pool_bytes
    except InputError as error:
        if sizing.ask.nodes is None:
            raise
        raise InputError(
            f"{error}. A replica over several nodes is not planned: no measurement of pipeline"
            " stages or of tensor parallelism over a network is in the speed model"
        ) from None


def _header(sizing: Sizing) -> str:
    d, t = sizing.ask.deployment, sizing.ask.traffic
    p = d.shape.parameters
    active = f", {p.active / 1e9:.3g} B active" if p.experts else ""
    return (
        f"{d.shape.name}: {p.total / 1e9:.4g} B parameters{active}, {d.shape.precision},"
        f" {size(d.shape.weight_bytes)} on {d.num_devices} × {d.device.name}\n"
        f"traffic: {t.rate:.3g} {'request' if t.rate == 1 else 'requests'}/s,"
        f" {t.isl:.0f} tokens in, {t.osl:.0f} out ({t.source})"
    )


def _conclusions(sizing: Sizing) -> list[Line]:
    ask, slots = sizing.ask, sizing.max_concurrency
    by = _bound_by(sizing)
    lines = [
        Line(
            "replicas",
            f"{sizing.replicas}, of {plural(ask.deployment.num_devices, 'device')} each",
            sizing.replicas,
        ),
        Line(
            "max_concurrency",
            f"{slots} per replica, bounded by {by}",
            slots,
            measured=ask.measured("cliff"),
        ),
        Line(
            "capacity of one replica",
            f"{sizing.replica_rate:.3g} requests/s full,"
            f" {sizing.replica_rate * sizing.utilisation:.3g} at {percent(sizing.utilisation)}",
            sizing.replica_rate,
            "1/s",
        ),
        Line("idle time-out", _idle_words(sizing), idle_timeout_s(sizing), "s"),
    ]
    if ask.nodes is not None:
        lines.append(_fleet(sizing, ask.nodes))
    if ask.price is not None:
        lines.append(_cost(sizing, sizing.replicas * ask.deployment.num_devices * ask.price))
    return lines


def _fleet(sizing: Sizing, nodes: int) -> Line:
    """What the given nodes hold: tensor parallelism inside a node, replicas across nodes."""
    spare = nodes - sizing.replicas
    full = nodes * sizing.replica_rate * sizing.utilisation
    what = f"{spare} to spare" if spare >= 0 else f"{-spare} TOO FEW"
    text = f"{nodes} nodes, one replica each: {what}; {full:.3g} requests/s within the targets"
    return Line("fleet", text, float(nodes))


def _cost(sizing: Sizing, hourly: float) -> Line:
    """Cost of keeping the replicas, and of letting one sleep where the gaps are known."""
    traffic = sizing.ask.traffic
    million = hourly / (traffic.rate * traffic.osl * HOUR) * 1e6
    text = f"{hourly:.2f} an hour, {million:,.2f} per million output tokens at this rate"
    gaps = parts_start.idle_gaps(tuple(traffic.gaps_s), sizing.service_s)
    if sizing.ask.may_sleep and gaps and sizing.replicas == 1:
        span = sum(traffic.gaps_s)
        kept = Gaps(gaps).best(sizing.start_s()).cost_s + max(0.0, span - sum(gaps))
        text += f"; {hourly * kept / span:.2f} an hour with the idle time-out above"
    return Line("cost", text, hourly)


def _bound_by(sizing: Sizing) -> str:
    if sizing.max_concurrency == sizing.cliff:
        return "the measured cliff"
    if sizing.max_concurrency >= LARGEST_BATCH:
        return "the largest batch that was ever measured"
    return "the KV pool" if sizing.max_concurrency >= sizing.kv_sessions else "the ITL target"


def idle_timeout_s(sizing: Sizing) -> float:
    """The time-out that costs least on the user's gaps; the cost of a start without any."""
    cost = sizing.start_s()
    gaps = parts_start.idle_gaps(tuple(sizing.ask.traffic.gaps_s), sizing.service_s)
    return Gaps(gaps).best(cost).idle_timeout_s if gaps else cost


def _idle_words(sizing: Sizing) -> str:
    basis = "cheapest on your gaps" if sizing.ask.traffic.gaps_s else "the cost of a start"
    return f"{seconds(idle_timeout_s(sizing))} ({basis})"


def _warnings(sizing: Sizing) -> list[str]:
    ask, found = sizing.ask, []
    if ask.measurements and all(m.stage != ask.stage for m in ask.measurements):
        seen = ", ".join(sorted({m.stage for m in ask.measurements}))
        found.append(f"nothing was measured of the stage {ask.stage!r}: give --stage ({seen})")
    if sizing.ask.slo.ttft_p95_s is not None and sizing.wait_limit_s <= 0.0:
        found.append(
            f"the prompt alone takes {seconds(sizing.first_token.value_s)}, beyond the TTFT target"
            f" of {seconds(sizing.ask.slo.ttft_p95_s)}: no number of replicas meets it"
        )
    if sizing.speed_limit[0] == 0:
        found.append("the ITL target holds by the estimate, but not at the interval's slow end")
    if ask.traffic.isl + ask.traffic.osl > ask.deployment.shape.max_context:
        found.append(
            f"{ask.traffic.isl + ask.traffic.osl:.0f} tokens exceed the model's context of"
            f" {ask.deployment.shape.max_context}"
        )
    if ask.deployment.shape.parameters.encoder:
        found.append("the encoder's own time per input is not modelled: measure it")
    if ask.deployment.shape.is_latent and ask.deployment.kv_split > 1:
        found.append(
            "tensor parallelism holds the latent KV cache once per device: --dp-attention"
            " holds it once in all"
        )
    if ask.nodes is not None and ask.nodes < sizing.replicas:
        found.append(
            f"{ask.nodes} nodes are too few: {sizing.replicas} replicas hold the targets at this"
            " rate; fewer queue"
        )
    if sizing.replicas > MOST_REPLICAS:
        found.append(f"{sizing.replicas} replicas: is the rate in requests per second?")
    return found


def app_file(sizing: Sizing) -> str:
    """The stage as an app file: limits, targets and scale from the plan."""
    ask, d = sizing.ask, sizing.ask.deployment
    most = sizing.replicas + sizing.added_in_spike
    ready = sizing.replicas
    if ask.nodes is not None:
        most, ready = min(most, ask.nodes), min(ready, ask.nodes)
    target = max(1.0, round(sizing.utilisation * sizing.max_concurrency, 1))
    rows = [
        f"[stage.{ask.stage}]",
        f'engine = "{d.engine}"',
        f"model = {json.dumps(ask.model_reference)}",
        f"gpus = {d.num_devices}",
        f"max_concurrency = {sizing.max_concurrency}",
    ]
    slo = [
        f'{name} = "{round(value * 1e3)}ms"'
        for name, value in (("ttft_p95", ask.slo.ttft_p95_s), ("itl_p95", ask.slo.itl_p95_s))
        if value is not None
    ]
    if slo:
        rows.append(f"slo = {{ {', '.join(slo)} }}")
    wait = max(1, round(min(sizing.wait_limit_s, 60.0) * 1e3))
    rows.append(f'queue = {{ max_wait = "{wait}ms" }}')
    idle = max(1, round(idle_timeout_s(sizing)))
    low = 0 if ask.may_sleep else ready
    rows.append(
        f"scale = {{ min = {low}, max = {most}, target_concurrency = {target:g},"
        f' idle_timeout = "{idle}s" }}'
    )
    return "\n".join(rows)
