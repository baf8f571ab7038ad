"""`preroll top`: a live table; queue depth and wait first, utilisation never alone."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cyclopts
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from preroll.cli.call import call
from preroll.cli.place import state_of
from preroll.cli.ps import seconds
from preroll.serve.statedir import StateDir
from preroll.serve.survey import Seen, Survey, existing, survey

app = cyclopts.App(name="preroll top", help=__doc__, version_flags=[])


@app.default
def top(
    name: str | None = None,
    /,
    *,
    state: Path | None = None,
    interval: float = 1.0,
    rounds: int = 0,
) -> int:
    """Shows queues, stages and replicas until interrupted.

    Parameters
    ----------
    name: str
        App file or name; may be left out when only one app is served.
    state: Path
        State directory, instead of a name.
    interval: float
        Seconds between two looks.
    rounds: int
        Stop after that many looks; 0 goes on.
    """
    where = existing(state_of(name, state))
    with suppress(KeyboardInterrupt):
        asyncio.run(watch(where, interval, rounds))
    return 0


async def watch(state: StateDir, interval_s: float, rounds: int) -> None:
    rates = Rates()
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        count = 0
        while True:
            live.update(render(await survey(state), rates), refresh=True)
            count += 1
            if count == rounds:
                return
            await asyncio.sleep(interval_s)


@dataclass(slots=True)
class Rates:
    """Differences of counters between two looks, per second."""

    _before: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def of(self, subject: str, counter: str, value: float | None, now_s: float) -> float | None:
        """None at the first look, and when the counter fell (a process was started anew)."""
        if value is None:
            return None
        before = self._before.get((subject, counter))
        self._before[subject, counter] = (now_s, value)
        if before is None or now_s <= before[0] or value < before[1]:
            return None
        return (value - before[1]) / (now_s - before[0])


def render(seen: Survey, rates: Rates) -> RenderableType:
    now_s = time.monotonic()
    stages = Table(
        Column("stage", no_wrap=True),
        *(Column(name, justify="right") for name in STAGE_COLUMNS),
    )
    for name, state in sorted(seen.stages.items()):
        stages.add_row(name, *stage_cells(name, state, seen, rates, now_s))
    replicas = Table(
        Column("replica", no_wrap=True),
        *(Column(name, justify="right") for name in REPLICA_COLUMNS),
    )
    for one in seen.replicas:
        replicas.add_row(one.status.id, *replica_cells(one, rates, now_s))
    notes = [Text(f"warning: {line}") for line in seen.control.get("problems", [])]
    control = f"control {seen.control_pid}" if seen.control_pid else "control is not running"
    return Group(Text(f"{control} · {time.strftime('%H:%M:%S')}"), stages, replicas, *notes)


STAGE_COLUMNS = (
    *("queued", "oldest wait", "expected wait", "in flight", "sessions"),
    *("arrivals/s", "refused/s", "ready", "wanted"),
)
REPLICA_COLUMNS = ("state", "in flight", "connections", "ejected", "CPU", "memory", "age")


def stage_cells(
    name: str, state: dict[str, Any], seen: Survey, rates: Rates, now_s: float
) -> list[str]:
    told = seen.control.get("stages", {}).get(name, {})
    ready = sum(
        one.state == "ready" for one in seen.replicas if one.record and one.record.stage == name
    )
    return [
        str(state.get("queued", "–")),
        milliseconds(state.get("oldest_wait_ms")),
        milliseconds(state.get("expected_wait_ms")),
        str(state.get("in_flight", "–")),
        str(state.get("sessions", "–")),
        number(rates.of(name, "arrivals", state.get("arrivals_total"), now_s)),
        number(rates.of(name, "refused", state.get("refused_total"), now_s)),
        str(ready),
        str(told.get("wanted", "–")),
    ]


def replica_cells(one: Seen, rates: Rates, now_s: float) -> list[str]:
    usage, status = one.status.usage, one.status
    cpu = rates.of(status.id, "cpu", usage.cpu_ns / 1e9 if usage else None, now_s)
    age_s = (time.monotonic_ns() - status.spawned_ns) / 1e9 if status.spawned_ns else None
    return [
        one.state,
        str(one.counters.get("in_flight", "–")),
        str(one.counters.get("connections", "–")),
        "yes" if one.counters.get("ejected") else "no",
        "–" if cpu is None else f"{cpu:.2f}",
        f"{usage.rss_bytes / 2**20:.0f} MiB" if usage else "–",
        seconds(age_s),
    ]


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def main(arguments: list[str]) -> int:
    return call(app, arguments)
