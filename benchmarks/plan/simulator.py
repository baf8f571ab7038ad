"""The simulator's half of `make bench-plan`: speed beside simpy, idle cost, spike error."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from record import merge

from preroll._core import Simulation
from preroll.control.policies import policy_named
from preroll.core import ScaleParameters
from preroll.planning.simulator import Scenario, simulate
from preroll.planning.workloads import workload

SIMPY = Path(".cache/simpy/bin/python")
TICKS_S = {"ski-rental": 10.0, "fixed-timeout": 10.0, "hybrid-histogram": 60.0}
"""Seconds between decisions: one that pre-warms is asked around the clock, so less often."""
START_WORTH_S = 420.0
RATE, BUSY, START_S = 6.0, 4.0, 180.0
SURGE_S = 60.0


def constant(value: float) -> dict[str, Any]:
    return {"kind": "constant", "value": value}


def exponential(mean: float) -> dict[str, Any]:
    return {"kind": "exponential", "mean": mean}


def run(config: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Report and CPU seconds."""
    simulation = Simulation(json.dumps(config), [])
    begin = time.process_time()
    report = json.loads(simulation.run())
    return report, time.process_time() - begin


def queue(requests: float, rate: float, replicas: int) -> dict[str, Any]:
    arrivals = {
        "kind": "renewal",
        "gap": exponential(1.0),
        "rates": [[0.0, rate]],
        "end_s": requests / rate,
        "prompt": constant(1.0),
        "output": constant(1.0),
    }
    service = {"kind": "slots", "slots": 1, "time": exponential(1.0)}
    endpoint = {"name": "q", "arrivals": arrivals, "service": service, "replicas": replicas}
    return {"seed": 1, "endpoints": [endpoint]}


def speed() -> dict[str, float]:
    for replicas in (10, 100):
        report, cpu_s = run(queue(3e6, 0.8 * replicas, replicas))
        print(f"M/M/{replicas:<4} {report['events'] / cpu_s / 1e6:6.1f} million events/s")
    rss_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report, cpu_s = run(queue(1e8, 0.8, 1))
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wait_s = report["endpoints"][0]["wait"]["mean_s"]
    print(f"M/M/1    {report['events'] / cpu_s / 1e6:6.1f} million events/s, {cpu_s:.1f} s for")
    print(f"         {report['endpoints'][0]['arrivals']:,} requests, mean wait {wait_s:.4f} s")
    print(f"         (theory 4), memory grew by {(rss - rss_before) / 1024:.1f} MiB")
    return {
        "events_per_s": report["events"] / cpu_s,
        "requests_1e8_s": cpu_s,
        "sim_memory_growth_mib": (rss - rss_before) / 1024,
    }


def simpy() -> dict[str, float]:
    """The same M/M/1 in simpy, in a virtual environment of its own."""
    if not SIMPY.exists():
        print("simpy: not installed (make bench-plan installs it)")
        return {}
    script = Path(__file__).with_name("simpy_queue.py")
    done = subprocess.run([SIMPY, script], capture_output=True, text=True, check=True, timeout=120)
    per_s = float(done.stdout)
    print(f"simpy    {per_s:,.0f} requests/s, the same model")
    return {"simpy_requests_per_s": per_s}


def idle_cost() -> dict[str, float]:
    load = workload("servegen:quiet")
    scenario = Scenario(
        service={"kind": "slots", "slots": 256, "time": constant(1.0)},
        scale=ScaleParameters(0, 1, 256.0),
        start={"new_node": constant(0.0)},
        start_cost_s=START_WORTH_S,
    )
    print(f"\nidle cost over the offline optimum, {len(load.arrivals)} quiet endpoints, 14 days")
    figures = {}
    for name, tick_s in TICKS_S.items():
        case = replace(scenario, tick_s=tick_s)
        outcome = simulate(load, case, name, partial(policy_named, name))
        ratio = outcome.cost_over_optimum or 0.0
        figures[f"idle_cost_{name.replace('-', '_')}"] = ratio
        print(f"  {name:<18}{ratio:6.3f} x, {outcome.cold_starts:,} cold starts")
    figures["idle_cost_over_optimum"] = figures["idle_cost_ski_rental"]
    return figures


def spike(seed: int, gap: dict[str, Any], service: dict[str, Any]) -> dict[str, Any]:
    end_s = SURGE_S + 900.0
    arrivals = {
        "kind": "renewal",
        "gap": gap,
        "rates": [[0.0, 2.0], [SURGE_S, RATE]],
        "end_s": end_s,
        "prompt": constant(1.0),
        "output": constant(1.0),
    }
    endpoint = {
        "name": "chat",
        "arrivals": arrivals,
        "service": {"kind": "slots", "slots": 1, "time": service},
        "replicas": 1,
        "plan": [[SURGE_S, 2]],
        "start": {"new_node": constant(START_S)},
    }
    config = {"seed": seed, "end_s": end_s, "sample_s": 1.0, "endpoints": [endpoint]}
    found: dict[str, Any] = run(config)[0]["endpoints"][0]
    return found


def spike_error(runs: int = 400) -> dict[str, float]:
    """Largest relative error of peak and recovery, deterministic and mean of random runs."""
    peak, recovered_s = (RATE - BUSY) * START_S, BUSY * START_S / (2 * BUSY - RATE)
    fluid = spike(0, constant(1.0), constant(1 / BUSY))
    pairs = [
        (fluid["peak_queued"], peak),
        (fluid["drained_s"] - SURGE_S, recovered_s),
    ]
    random = [spike(seed, exponential(1.0), exponential(1 / BUSY)) for seed in range(runs)]
    length = min(len(r["timeline"]) for r in random)
    mean_queue = [fmean(r["timeline"][i][1] for r in random) for i in range(length)]
    pairs.append((max(mean_queue), peak))
    pairs.append((fmean(r["drained_s"] - SURGE_S for r in random), recovered_s))
    error = max(abs(value / theory - 1) for value, theory in pairs)
    shown = ", ".join(f"{value:.1f} ({theory:.0f})" for value, theory in pairs)
    print(f"\nspike, found (theory): {shown}; largest error {100 * error:.2f} %")
    return {"spike_error": error}


def main() -> None:
    parts = {"speed": speed, "simpy": simpy, "idle": idle_cost, "spike": spike_error}
    for name in sys.argv[1:] or parts:
        figures = parts[name]()
        merge("plan", figures)


if __name__ == "__main__":
    main()
