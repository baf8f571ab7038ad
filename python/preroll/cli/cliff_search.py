"""One search of `preroll cliff`: its limits, the probe, the confirming runs, the files."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from preroll.cli.cliff_target import Found, queue_depth
from preroll.cli.load_options import Request, seconds
from preroll.errors import InputError
from preroll.instruments.cliff.confirm import confirm, sender
from preroll.instruments.cliff.live import LiveProbe
from preroll.instruments.cliff.report import page, text
from preroll.instruments.cliff.search import Cliff, Search, Settings
from preroll.instruments.load.requests import Server, spill
from preroll.instruments.load.result import Targets

DOOR = "this is a DOOR cliff: it shows when a Preroll door queues and refuses, and sets no limit"


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How far the search may go."""

    max_level: Annotated[int, Parameter(help="most requests in flight")] = 1024
    max_requests: Annotated[int, Parameter(help="budget in requests")] = 100_000
    max_time: Annotated[str, Parameter(help="budget in time")] = "1h"
    max_failures: Annotated[int | None, Parameter(help="stop after so many failures")] = None
    timeout: Annotated[str, Parameter(help="when a request is given up")] = "60s"
    allow_break: Annotated[bool, Parameter(negative=(), help="for a target elsewhere")] = False

    def settings(self, server: Server) -> Settings:
        if not server.is_loopback and not (self.allow_break and self.max_failures is not None):
            raise InputError(
                f"{server.host} is not this machine: a cliff is found by overloading the server; "
                "say --allow-break and --max-failures N if it is yours to break"
            )
        return Settings(
            max_level=self.max_level,
            max_requests=self.max_requests,
            max_seconds=seconds(self.max_time, "--max-time") or 3600.0,
            max_failures=self.max_failures,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What is searched for, how far, and where its files go."""

    request: Request
    targets: Targets
    limits: Limits
    confirms: bool
    folder: Path
    now: datetime


def search(found: Found, job: Job) -> tuple[Cliff, list[str], dict[int, float]]:
    """What was found, what must be said beside it, and the server's queue by level."""
    settings = job.limits.settings(found.server)
    requests = spill(job.request.templates(found.server), job.folder)
    timeout_s = seconds(job.limits.timeout, "--timeout") or 60.0
    depth: dict[int, float] = {}
    records = job.folder / "records.ndjson"
    with LiveProbe(found.server, requests, job.targets, records, timeout_s) as probe:
        probe.on_level = lambda level: queue_depth(found.server, level, depth)
        result = Search(probe, settings, say=lambda line: print(line, file=sys.stderr)).run()
        throughput_per_s = probe.throughput_per_s(result.limit or 1)
    notes = [*found.notes]
    if probe.lag_ms is not None:
        notes.append(f"client lag p99 {probe.lag_ms:.2f} ms")
    if probe.through_door:
        return dataclasses.replace(result, is_door=True), [*notes, DOOR], depth
    if job.confirms and result.limit is not None and throughput_per_s is not None:
        result = _confirmed(result, throughput_per_s, found.server, requests, job, timeout_s)
    return result, notes + found.keep(result, job.now), depth


def _confirmed(
    result: Cliff,
    throughput_per_s: float,
    server: Server,
    requests: Sequence[dict[str, Any]],
    job: Job,
    timeout_s: float,
) -> Cliff:
    """An interrupt leaves the runs out: the closed loop's result stands by itself."""
    send = sender(server, requests, job.targets, timeout_s)
    with suppress(KeyboardInterrupt):
        return dataclasses.replace(result, open_runs=confirm(result, throughput_per_s, send))
    return result


def write(
    folder: Path, result: Cliff, title: str, depth: dict[int, float], notes: Sequence[str]
) -> None:
    document = {"version": 1, "title": title, "notes": list(notes), "queue_depth": depth}
    document |= dataclasses.asdict(result)
    (folder / "result.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "report.md").write_text(text(result, title, notes))
    (folder / "report.html").write_text(page(result, title, depth, notes))
