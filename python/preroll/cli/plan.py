"""`preroll plan`: the arithmetic before you rent, on one page; every result with its formula."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from preroll import measurements
from preroll.cli.call import call
from preroll.cli.options import Flag, duration_s
from preroll.cli.plan_inputs import parse_slo, parse_traffic
from preroll.core import Measurement, Preparedness
from preroll.errors import InputError
from preroll.planning import arrivals, models, probe
from preroll.planning.catalogue import devices, hosts, parse_fleet
from preroll.planning.deployment import Deployment
from preroll.planning.inputs import Ask
from preroll.planning.planner import plan
from preroll.planning.report import as_json, as_text, wrap
from preroll.planning.shape import ModelShape

HELP = f"""{__doc__}

    preroll plan --model Llama-3.1-70B --on 8xH100 --traffic rate=6/s,in=500,out=200
    preroll plan --model ./my-model --on 1xL4 --access-log access.jsonl
    preroll plan --list              built-in models and devices
    preroll plan --measure-here [--model M]     this machine's memory bandwidth, and what it allows
"""

app = cyclopts.App(name="preroll plan", help=HELP, help_format="plaintext", version_flags=[])


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be asked of a plan.

    Parameters
    ----------
    model: str
        A folder with config.json, a config.json, or a built-in name.
    on: str
        COUNTxDEVICE, such as 8xH100: one replica on up to 8 devices of a node; 16, 24, … are nodes
        of 8 with one replica each.
    traffic: str
        rate=6/s,in=500,out=200[,cs=1.5,ca=1] or a trace file.
    slo: str
        ttft=800ms,itl=40ms.
    trace: Path
        Arrivals for the gaps: JSON lines, CSV with a header.
    access_log: Path
        The same from the door's log or a web server's.
    measured: Path
        app.measured.toml, or the app.toml beside it: shown beside what is modelled.
    stage: str
        Name of the stage in the app file and in the measurements; by default the only measured
        one, else "model".
    engine: str
        vllm, sglang or trtllm: whose speed is modelled.
    dtype: str
        Weight precision, if the config does not say it: bf16, fp8, fp4, mxfp4, int4.
    kv_dtype: str
        KV cache precision: bf16, fp8, nvfp4, q8_0, …
    ep: int
        Expert-parallel size.
    dp_attention: bool
        Every device keeps its own sequences (data-parallel attention).
    preparedness: Preparedness
        What a start finds: new_node, warm_node, local_weights, resident.
    spike: float
        How many times the rate a spike is.
    client_timeout: str
        When clients give up, such as 60s.
    retries: int
        Attempts after a time-out.
    calls: int
        Model calls per user action.
    price: float
        Price of one device for one hour.
    """

    model: str | None = None
    on: str | None = None
    traffic: str | None = None
    slo: str | None = None
    trace: Path | None = None
    access_log: Path | None = None
    measured: Path | None = None
    stage: str | None = None
    engine: str = "vllm"
    dtype: str | None = None
    kv_dtype: str = "bf16"
    ep: int = 1
    dp_attention: Flag = False
    preparedness: Preparedness = Preparedness.LOCAL_WEIGHTS
    spike: float = 3.0
    client_timeout: str = "60s"
    retries: int = 2
    calls: int = 20
    price: float | None = None


@app.default
def command(
    options: Options | None = None,
    *,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
    list_: Annotated[bool, Parameter(name="--list", negative=())] = False,
    measure_here: Flag = False,
) -> int:
    """One page of plan. Exit status 2 with one line when an input is wrong or nothing fits.

    Parameters
    ----------
    json_: bool
        The plan as JSON.
    list_: bool
        Built-in models and devices.
    measure_here: bool
        Measure this machine; with --model, the ceiling of one stream of it here.
    """
    given = options or Options()
    if list_:
        return _print_lists()
    if measure_here:
        shape = models.find(given.model, given.dtype) if given.model else None
        return _print_probe(shape, json_)
    result = plan(ask(given))
    print(json.dumps(as_json(result), indent=1) if json_ else as_text(result))
    return 0


def ask(o: Options) -> Ask:
    """The question to the planner; InputError names the flag that is wrong."""
    if o.model is None or o.on is None:
        raise InputError("--model and --on are needed, such as --model Llama-3.1-70B --on 8xH100")
    nodes, count, device = parse_fleet(o.on)
    shape = models.find(o.model, o.dtype)
    if o.trace and o.access_log:
        raise InputError("--trace and --access-log: give arrivals once")
    seen, measured = o.access_log or o.trace, _measurements(o.measured)
    return Ask(
        Deployment(shape, device, count, o.engine, o.ep, o.dp_attention, o.kv_dtype),
        parse_traffic(o.traffic, arrivals.read(seen) if seen else None, str(seen)),
        parse_slo(o.slo),
        o.preparedness,
        o.stage or _only_stage(measured),
        models.reference(o.model),
        o.spike,
        duration_s("--client-timeout", o.client_timeout),
        o.retries,
        o.calls,
        o.price,
        measured,
        nodes if nodes > 1 else None,
    )


def _measurements(path: Path | None) -> list[Measurement]:
    if path is None:
        return []
    file = path if path.name.endswith(".measured.toml") else measurements.measured_path(path)
    if not file.is_file():
        raise InputError(f"--measured: {file} does not exist; preroll measure writes it")
    return measurements.read(file)


def _only_stage(entries: list[Measurement]) -> str:
    stages = {m.stage for m in entries}
    return stages.pop() if len(stages) == 1 else "model"


def _print_lists() -> int:
    for what, names in (
        ("models:  ", ", ".join(models.builtin())),
        ("devices: ", ", ".join(f"{key} ({d.name})" for key, d in devices().items())),
    ):
        print("\n".join(wrap(names, what, " " * len(what))))
    for host in hosts().values():
        rate = float(host["memory_bandwidth"]) / 1e9
        print(f"measured: {host['name']}: {rate:.3g} GB/s ({host['source']})")
    return 0


def _print_probe(shape: ModelShape | None, wants_json: bool) -> int:
    """The machine's rates; with a model also the most tokens/s that one stream can have here."""
    result = probe.measure()
    ceiling = None if shape is None else result.read_bytes_s / sum(shape.read_bytes(1))
    if wants_json:
        print(json.dumps({**result.as_dict(), "stream_tokens_per_s_at_most": ceiling}, indent=1))
        return 0
    print(result.text())
    if shape is not None:
        print(f"   {shape.name} ({shape.precision}): at most {ceiling:.3g} tokens/s for one stream")
    return 0


def main(arguments: list[str]) -> int:
    return call(app, arguments)
