"""`preroll simulate`: a workload against scaling policies, before anything is rented."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import cyclopts

from preroll.cli.call import call
from preroll.control.policies import policy_named
from preroll.errors import InputError
from preroll.planning.scenario import Inputs, scenario
from preroll.planning.simulation_html import page
from preroll.planning.simulation_report import as_dict, table
from preroll.planning.simulator import Outcome, simulate
from preroll.planning.sweep import sweep
from preroll.planning.workloads import workload

app = cyclopts.App(name="preroll simulate", help=__doc__, version_flags=[])
MAX_RUNS = 1000


@app.default
def run(
    *,
    trace: str,
    policy: str = "ski-rental",
    sweep_: Annotated[tuple[str, ...], cyclopts.Parameter(name="--sweep", negative=())] = (),
    html: Path | None = None,
    as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative=())] = False,
    inputs: Annotated[Inputs, cyclopts.Parameter(name="*")] = Inputs(),  # noqa: B008
) -> int:
    """Simulates policies on one workload and compares them.

    Parameters
    ----------
    trace: str
        A file (Azure CSV, Mooncake JSON lines, access log), azure-code, azure-conv, mooncake, or
        a generator: poisson:rate=2,for=1h · gamma:rate=2,cv=3 · deterministic:rate=2 ·
        spike:base=2,peak=6,at=1m,for=30m · servegen:quiet · servegen:m-large/10,for=7d.
    policy: str
        One or more, separated by commas: ski-rental, fixed-timeout, hybrid-histogram,
        learned-schedule, target-concurrency, knative-like, ray-serve-like, keda-like, always-on.
    sweep_: tuple[str, ...]
        KEY=V1,V2: runs every policy with every value of an option below; may repeat.
    html: Path
        Writes timelines and the table as one self-contained page.
    as_json: bool
        Machine-readable output.
    inputs: Inputs
        Service, scale, starts and clients.
    """
    outcomes = _outcomes(trace, [name.strip() for name in policy.split(",")], sweep_, inputs)
    if html is not None:
        _write(html, page(trace, outcomes))
    if as_json:
        print(json.dumps([{"run": label, **as_dict(o)} for label, o in outcomes], indent=1))
    else:
        print(table(outcomes))
    return 0


def _outcomes(
    trace: str, policies: list[str], sweeps: tuple[str, ...], inputs: Inputs
) -> list[tuple[str, Outcome]]:
    for name in policies:
        policy_named(name)
    variants = sweep(sweeps)
    if len(variants) * len(policies) > MAX_RUNS:
        raise InputError(f"{len(variants) * len(policies)} runs; at most {MAX_RUNS} are allowed")
    found = []
    for changes in variants:
        chosen = replace(inputs, **changes)
        load = workload(trace, chosen.speed)
        built = scenario(chosen)
        for name in policies:
            label = " ".join([name, *(f"{k}={v}" for k, v in changes.items())])
            found.append((label, simulate(load, built, name, partial(policy_named, name))))
    return found


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    print(f"wrote {path}", file=sys.stderr)


def main(arguments: list[str]) -> int:
    return call(app, arguments)
