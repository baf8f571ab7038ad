"""What a closed loop cannot show: users who come when they like. Open-loop runs at a limit.

A closed loop of N clients never has more than N requests in flight. Poisson arrivals at the same
throughput have N on average and sometimes many more, so a limit is confirmed at a share of that
throughput, going down until a rate holds.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from preroll.instruments.cliff.search import MATERIAL, Cliff, OpenRun
from preroll.instruments.intervals import design_effect, share_interval
from preroll.instruments.load.client import Client
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import read
from preroll.instruments.load.requests import Server
from preroll.instruments.load.result import Targets, is_within

Json = dict[str, Any]
UTILISATIONS = (0.8, 0.65, 0.5, 0.35)
COUNT = 400
# Without a failure, fewer cannot be told from the material 5 %.
LEAST = 80
BATCHES = 10
HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"


Send = Callable[[float, int], tuple[list[bool], float]]
"""Sends `count` requests at a rate: who failed, in the order of arrival, and the mean in flight."""


def confirm(
    cliff: Cliff,
    throughput_per_s: float,
    send: Send,
    left_s: Callable[[], float] = lambda: math.inf,
) -> tuple[OpenRun, ...]:
    """Runs at falling shares of `throughput_per_s` (that of the closed loop at the limit) until
    one holds: fewer failures than material, beyond doubt. `left_s`: the time there is; a run is
    shortened to half of it, and none begins that would be too short to decide anything."""
    share = cliff.threshold(MATERIAL).share
    runs: list[OpenRun] = []
    for utilisation in UTILISATIONS:
        rate = utilisation * throughput_per_s
        count = int(min(COUNT, rate * left_s() / 2))
        if count < LEAST:
            break
        outcomes, in_flight = send(rate, count)
        effect = design_effect(outcomes, BATCHES)
        found = share_interval(sum(outcomes), len(outcomes), design_effect=effect)
        verdict = HOLDS if found.high < share else FAILS if found.low >= share else UNDECIDED
        seen = (found.value, found.low, found.high, len(outcomes), in_flight)
        runs.append(OpenRun(utilisation, rate, *seen, verdict))
        if verdict == HOLDS:
            break
    return tuple(runs)


def sender(
    server: Server, requests: Sequence[Json], targets: Targets, timeout_s: float, seed: int = 0
) -> Send:
    """The executor over real sockets. A run that was cut short raises KeyboardInterrupt."""

    def send(rate_per_s: float, count: int) -> tuple[list[bool], float]:
        plan = Plan(rate=rate_per_s, requests=count, timeout_s=timeout_s, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "records.ndjson"
            with Client(plan.spec(server, requests, records)) as client:
                for _ in client:
                    pass
            raw = read(records)
        measured = sorted(raw.measured, key=lambda record: record["intended_ns"])
        in_flight = 0.0 if raw.end is None else float(raw.end["mean_in_flight"])
        return [not is_within(record, targets) for record in measured], in_flight

    return send
