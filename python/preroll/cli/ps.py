"""`preroll ps`: replicas, their states, ages and memory, and where their numbers come from."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.table import Column, Table

from preroll.cli.call import call
from preroll.cli.place import state_of
from preroll.serve.survey import Seen, Survey, survey

app = cyclopts.App(name="preroll ps", help=__doc__, version_flags=[])


@app.default
def ps(
    name: str | None = None,
    /,
    *,
    state: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Shows what runs.

    Parameters
    ----------
    name: str
        App file or name; may be left out when only one app is served.
    state: Path
        State directory, instead of a name.
    as_json: bool
        One JSON document instead of tables.
    """
    seen = asyncio.run(survey(state_of(name, state)))
    if as_json:
        print(json.dumps(document(seen), indent=1))
    else:
        show(seen, Console(highlight=False))
    return 0


def document(seen: Survey) -> dict[str, Any]:
    """Ages in seconds, memory in bytes."""
    return {
        "control_pid": seen.control_pid,
        "door_pid": seen.door.pid if seen.door else None,
        "listen": seen.control.get("listen", []),
        "stages": {name: stage(seen, name) for name in stage_names(seen)},
        "replicas": [replica(one) for one in seen.replicas],
        "fork_servers": [{"id": fork.id, "pid": fork.pid} for fork in seen.forks],
        "warnings": seen.control.get("warnings", []),
        "problems": seen.control.get("problems", []),
    }


def stage_names(seen: Survey) -> list[str]:
    return sorted({*seen.stages, *seen.control.get("stages", {})})


def stage(seen: Survey, name: str) -> dict[str, Any]:
    counters = {k: v for k, v in seen.stages.get(name, {}).items() if k != "replicas"}
    control = seen.control.get("stages", {}).get(name, {})
    told = {k: v for k, v in control.items() if k != "replicas"}
    return {**told, **counters}


def replica(one: Seen) -> dict[str, Any]:
    status, record = one.status, one.record
    spawned_ns = status.spawned_ns or time.monotonic_ns()
    return {
        "id": status.id,
        "stage": record.stage if record else None,
        "state": one.state,
        "pid": status.pid,
        "age_s": round((time.monotonic_ns() - spawned_ns) / 1e9, 3),
        "start_s": round((record.ready_ns - spawned_ns) / 1e9, 3)
        if record and record.ready_ns
        else None,
        "memory_bytes": status.usage.rss_bytes if status.usage else None,
        "processes": status.usage.processes if status.usage else None,
        "limits": dict(status.limits_applied),
        "oom_kills": status.oom_kills,
        **one.counters,
    }


def show(seen: Survey, console: Console) -> None:
    control = f"control {seen.control_pid}" if seen.control_pid else "control is not running"
    door = f"door {seen.door.pid}" if seen.door else "no door"
    console.print(f"{control} · {door} · {', '.join(seen.control.get('listen', []))}")
    table = Table("stage", "queued", "in flight", "wanted", "why", "start p50 / p90", "measured by")
    for name in stage_names(seen):
        facts = stage(seen, name)
        table.add_row(
            name,
            str(facts.get("queued", "–")),
            str(facts.get("in_flight", "–")),
            str(facts.get("wanted", "–")),
            str(facts.get("reason", facts.get("error") or "")),
            f"{seconds(facts.get('start_p50_s'))} / {seconds(facts.get('start_p90_s'))}",
            str(facts.get("source", "–")),
        )
    console.print(table)
    columns = ("state", "age", "start", "memory", "in flight", "processes", "limits")
    table = Table(Column("replica", no_wrap=True), *columns)
    for one in seen.replicas:
        row = replica(one)
        memory = row["memory_bytes"]
        table.add_row(
            row["id"],
            row["state"],
            seconds(row["age_s"]),
            seconds(row["start_s"]),
            f"{memory / 2**20:.0f} MiB" if memory is not None else "–",
            str(row.get("in_flight", "–")),
            str(row["processes"] or "–"),
            ", ".join(limit_words(row["limits"])),
        )
    console.print(table)
    for fork in seen.forks:
        memory = f", {fork.usage.rss_bytes / 2**20:.0f} MiB" if fork.usage else ""
        console.print(f"{fork.id}: fork server {fork.pid}{memory}", markup=False)
    for name in stage_names(seen):
        facts = stage(seen, name)
        if facts.get("max_concurrency"):
            limit = f"{facts['max_concurrency']} in flight per replica"
            console.print(f"{name}: {limit}: {facts.get('limit_source')}", markup=False)
    for name in stage_names(seen):
        failure = stage(seen, name).get("last_failure")
        if failure and stage(seen, name).get("failures"):
            console.print(f"{name} failed last: {failure}", markup=False)
    for line in (*seen.control.get("warnings", []), *seen.control.get("problems", [])):
        console.print(f"warning: {line}", markup=False)


def limit_words(limits: dict[str, str]) -> list[str]:
    """Limits in force; one that was asked for and that nothing enforces is only declared."""
    words = []
    for name, how in limits.items():
        if not how.startswith("none"):
            words.append(f"{name} {how}")
        elif how.startswith("none: ") and "asked for" not in how:
            words.append(f"{name} declared ({how.removeprefix('none: ')})")
    return words


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def main(arguments: list[str]) -> int:
    return call(app, arguments)
