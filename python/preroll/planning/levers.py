"""What to change, cheapest first, each with the effect that the same formulas give."""

from __future__ import annotations

from dataclasses import replace

from preroll.core import Preparedness
from preroll.errors import InputError
from preroll.planning.formulas import start, transfer
from preroll.planning.inputs import Ask
from preroll.planning.report import seconds
from preroll.planning.sizing import Sizing


def levers(sizing: Sizing) -> tuple[str, ...]:
    """Sentences in order of cost: settings, then disk, memory, precision, then devices."""
    found = (
        _retry_signal(sizing),
        _artifacts(sizing),
        _local_weights(sizing),
        _resident(sizing),
        _kv_precision(sizing),
        _weight_precision(sizing),
        _one_more(sizing),
    )
    return tuple(sentence for sentence in found if sentence)


def _retry_signal(sizing: Sizing) -> str:
    wait, start_s = sizing.ask.timeout_s, sizing.start_s()
    if wait >= start_s:
        return "free: drop abandoned work and answer overload with Retry-After (the door does)"
    return (
        f"free: clients give up after {seconds(wait)}, before a start of {seconds(start_s)} ends:"
        " drop abandoned work, answer with Retry-After, lengthen the time-out"
    )


def _artifacts(sizing: Sizing) -> str:
    t = start.StageTimes()
    saved = t.compile_s - t.compile_restored_s + t.warm_s - t.warm_resident_s
    return f"free: restore compiled artifacts: saves {seconds(saved)} of every start"


def _local_weights(sizing: Sizing) -> str:
    weights = sizing.ask.deployment.shape.weight_bytes
    saved = transfer.floor_s(weights, start.OBJECT_STORE_STREAM)
    return f"disk: keep the weights on the node: saves {seconds(saved)} of fetch at 1 GB/s"


def _resident(sizing: Sizing) -> str:
    weights = sizing.ask.deployment.shape.weight_bytes
    before = start.total_s(start.bill(Preparedness.LOCAL_WEIGHTS, weights))
    after = start.total_s(start.bill(Preparedness.RESIDENT, weights))
    return (
        f"host memory: pin {weights / 1e9:.3g} GB and restore graphs: a start of"
        f" {seconds(before)} becomes {seconds(after)}"
    )


def _kv_precision(sizing: Sizing) -> str:
    ask = sizing.ask
    if ask.deployment.kv_dtype not in ("bf16", "fp16", "fp32"):
        return ""
    other = _again(ask, kv_dtype="fp8")
    is_bound = sizing.max_concurrency >= sizing.kv_sessions
    if other is None or not (is_bound or other.replicas < sizing.replicas):
        return ""  # memory that nobody waits for is no lever
    return (
        f"quality check: fp8 KV: sessions of this traffic {sizing.kv_sessions:,} →"
        f" {other.kv_sessions:,}, replicas {sizing.replicas} → {other.replicas}"
    )


def _weight_precision(sizing: Sizing) -> str:
    ask = sizing.ask
    if ask.deployment.shape.precision != "bf16":
        return ""
    shape = replace(ask.deployment.shape, precision="fp8", file_bytes=None)
    other = _again(ask, shape=shape)
    if other is None:
        return ""
    faster = sizing.tpot(1).value_s / other.tpot(1).value_s
    return (
        f"quality check: fp8 weights: half the bytes of every start, {faster:.2f} × the speed of"
        f" one stream, replicas {sizing.replicas} → {other.replicas}"
    )


def _again(ask: Ask, **changes: object) -> Sizing | None:
    """The same question with another deployment; None where it cannot be held."""
    other = Sizing(replace(ask, deployment=replace(ask.deployment, **changes)))  # type: ignore[arg-type]
    try:
        _ = other.replicas
    except InputError:
        return None
    return other


def _one_more(sizing: Sizing) -> str:
    ask, extra = sizing.ask, sizing.added_in_spike
    if not extra:
        return ""
    cost = ""
    if ask.price is not None:
        hourly = extra * ask.deployment.num_devices * ask.price
        cost = f" ({hourly:.2f} an hour while they run)"
    what = "replica absorbs" if extra == 1 else "replicas absorb"
    return f"devices: {extra} more {what} the spike of {ask.spike:g} ×{cost}"
