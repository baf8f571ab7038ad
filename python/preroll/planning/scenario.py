"""The options of `preroll simulate` and the scenario that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from preroll.core import ScaleParameters
from preroll.errors import InputError
from preroll.planning.simulator import Scenario
from preroll.planning.step_model import StepModel, step_model
from preroll.planning.workloads import Options, duration_s

DEFAULT_UTILISATION = 0.7


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that can be said about a scenario; durations are text such as 300ms or 5m.

    Parameters
    ----------
    slots: int
        Requests that a replica serves at a time.
    service_time: str
        Service time of one request, besides its tokens.
    service_cv: float
        Its coefficient of variation: 0 constant, 1 exponential, else gamma.
    prompt_token: str
        Service time per prompt token.
    output_token: str
        Service time per output token.
    first_byte: float
        Share of the service time after which the first byte comes.
    batch: str
        Continuous batching instead of slots: max_batch=64,step=10ms,seq=50us,kv_token=30ns,
        prefill_token=40us,kv_tokens=400000,chunk=2048,prefix_blocks=0; or from the speed model
        of `preroll plan`: model=Llama-3.1-70B,on=8xH100,max_batch=256.
    min: int
        Least replicas.
    max: int
        Most replicas.
    target: float
        Target concurrency per replica; by default 0.7 of the slots.
    idle_timeout: str
        auto, or a duration.
    prewarm: str
        Schedules, separated by semicolons: "Mon-Fri 07:55 Europe/Berlin".
    start_time: str
        Time of a start on a new node.
    start_cv: float
        Its coefficient of variation.
    start_local: str
        Time of a start where the weights are, for `keep_local` after a replica stopped.
    start_resident: str
        Time of a start where everything is resident, for `keep_resident` after it stopped.
    keep_local: str
        How long weights stay on a node.
    keep_resident: str
        How long everything stays resident.
    start_cost: str
        Worth of a start in seconds of one idle replica; by default its time.
    late: str
        A first byte later than this is late.
    queue_limit: int
        Requests that may wait; one more is refused.
    max_wait: str
        A request that waited this long is refused.
    client_timeout: str
        Clients give up after this long without a byte.
    retries: int
        Further attempts of a client after a refusal or a time-out.
    backoff: str
        Time between attempts.
    serve_dead_work: bool
        Serve what nobody waits for any more.
    devices: int
        Devices of the fleet that all endpoints share, one per replica.
    tick: str
        Period of control.
    speed: float
        Divides the gaps of a recorded trace.
    seed: int
        Of all random numbers.
    wall: float
        Seconds since the epoch of the first moment, for schedules.
    """

    slots: int = 8
    service_time: str = "1s"
    service_cv: float = 0.0
    prompt_token: str = "0s"
    output_token: str = "0s"
    first_byte: float = 0.0
    batch: str | None = None
    min: int = 0
    max: int = 4
    target: float | None = None
    idle_timeout: str = "auto"
    prewarm: str = ""
    start_time: str = "60s"
    start_cv: float = 0.0
    start_local: str | None = None
    start_resident: str | None = None
    keep_local: str = "0s"
    keep_resident: str = "0s"
    start_cost: str | None = None
    late: str = "2s"
    queue_limit: int | None = None
    max_wait: str | None = None
    client_timeout: str | None = None
    retries: int = 0
    backoff: str = "0s"
    serve_dead_work: bool = False
    devices: int | None = None
    tick: str = "5s"
    speed: float = 1.0
    seed: int = 0
    wall: float = 0.0


def scenario(inputs: Inputs) -> Scenario:
    """Builds the scenario; InputError names the option that is wrong."""
    if not 0 <= inputs.min <= inputs.max or inputs.max < 1:
        raise InputError(f"min is {inputs.min}, max is {inputs.max}; 0 <= min <= max, max >= 1")
    service, slots = _service(inputs)
    target = slots * DEFAULT_UTILISATION if inputs.target is None else inputs.target
    if target <= 0:
        raise InputError(f"target is {target}; it must be above 0 requests per replica")
    idle_s = None if inputs.idle_timeout == "auto" else _seconds("idle_timeout", inputs)
    prewarm = tuple(part.strip() for part in inputs.prewarm.split(";") if part.strip())
    client = {
        "timeout_s": _seconds("client_timeout", inputs),
        "retries": inputs.retries,
        "backoff": {"kind": "constant", "value": _seconds("backoff", inputs)},
        "serve_dead_work": inputs.serve_dead_work,
    }
    return Scenario(
        service=service,
        scale=ScaleParameters(inputs.min, inputs.max, target, idle_s, prewarm),
        start=_start(inputs),
        start_cost_s=_seconds("start_cost", inputs),
        late_s=_seconds("late", inputs),
        queue_limit=inputs.queue_limit,
        max_wait_s=_seconds("max_wait", inputs),
        client=client,
        tick_s=duration_s(inputs.tick, "tick"),
        devices=inputs.devices,
        seed=inputs.seed,
        wall_s=inputs.wall,
    )


def _seconds(name: str, inputs: Inputs) -> float | None:
    text = getattr(inputs, name)
    return None if text is None else duration_s(text, name)


def _dist(mean_s: float, cv: float, exponential: bool) -> dict[str, Any]:
    if cv == 0 or mean_s == 0:
        return {"kind": "constant", "value": mean_s}
    if cv == 1 and exponential:
        return {"kind": "exponential", "mean": mean_s}
    return {"kind": "gamma" if exponential else "lognormal", "mean": mean_s, "cv": cv}


def _service(inputs: Inputs) -> tuple[dict[str, Any], int]:
    if inputs.batch is not None:
        return _batch(inputs.batch)
    time_s = duration_s(inputs.service_time, "service_time")
    service = {
        "kind": "slots",
        "slots": inputs.slots,
        "time": _dist(time_s, inputs.service_cv, exponential=True),
        "prompt_token_s": duration_s(inputs.prompt_token, "prompt_token"),
        "output_token_s": duration_s(inputs.output_token, "output_token"),
        "first_share": inputs.first_byte,
    }
    return service, inputs.slots


def _batch(text: str) -> tuple[dict[str, Any], int]:
    options = Options(text, "batch")
    model, on = options.text("model", ""), options.text("on", "")
    if bool(model) != bool(on):
        raise InputError("batch: model= and on= go together, such as model=Llama-3.1-8B,on=1xH100")
    default = step_model(model, on) if model else StepModel(0.010, 0.0, 0.0, 0.0, 400_000, 0.0)
    max_batch = int(options.number("max_batch", 64))
    service = {
        "kind": "batch",
        "max_batch": max_batch,
        "step_s": options.seconds("step", f"{default.step_s}s"),
        "seq_s": options.seconds("seq", f"{default.seq_s}s"),
        "kv_token_s": options.seconds("kv_token", f"{default.kv_token_s}s"),
        "prefill_token_s": options.seconds("prefill_token", f"{default.prefill_token_s}s"),
        "kv_tokens": int(options.number("kv_tokens", default.kv_tokens)),
        "chunk_tokens": int(options.number("chunk", 2048)),
        "prefix_blocks": int(options.number("prefix_blocks", 0)),
        "block_tokens": int(options.number("block_tokens", 512)),
    }
    options.finish()
    return service, max_batch


def _start(inputs: Inputs) -> dict[str, Any]:
    def dist(name: str) -> dict[str, Any] | None:
        mean_s = _seconds(name, inputs)
        return None if mean_s is None else _dist(mean_s, inputs.start_cv, exponential=False)

    return {
        "new_node": dist("start_time"),
        "local_weights": dist("start_local"),
        "resident": dist("start_resident"),
        "keep_local_s": _seconds("keep_local", inputs),
        "keep_resident_s": _seconds("keep_resident", inputs),
    }
