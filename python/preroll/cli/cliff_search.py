"""One search of `preroll cliff`: its limits, the probe, the confirming runs, the files."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated

from cyclopts import Parameter

from preroll.cli.cliff_target import Found, queue_depth
from preroll.cli.load_options import Request, seconds
from preroll.errors import InputError
from preroll.instruments.cliff.confirm import confirm, sender
from preroll.instruments.cliff.live import LiveProbe
from preroll.instruments.cliff.plot import Beside, plot
from preroll.instruments.cliff.report import page, text
from preroll.instruments.cliff.search import Cliff, Search, Settings
from preroll.instruments.load.requests import Server, spill
from preroll.instruments.load.result import Targets, stale_note

SEARCH_SHARE = 0.75
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


def search(found: Found, job: Job) -> tuple[Cliff, list[str], Beside]:
    """What was found, what must be said beside it, and the server's queue and pace by level."""
    start = time.monotonic()
    settings = job.limits.settings(found.server)
    # The search's own share of the time: what is over is for the runs that confirm it.
    search_for = settings.max_seconds * (SEARCH_SHARE if job.confirms else 1.0)
    server = job.request.to(found.server)
    requests = spill(job.request.templates(server), job.folder)
    timeout_s = seconds(job.limits.timeout, "--timeout") or 60.0
    queue: dict[int, list[float]] = {}
    records = job.folder / "records.ndjson"
    with LiveProbe(server, requests, job.targets, records, timeout_s) as probe:
        probe.on_level = lambda level: queue_depth(server, queue.setdefault(level, []))
        result = Search(
            probe, dataclasses.replace(settings, max_seconds=search_for), say=_say
        ).run()
        throughput_per_s = probe.throughput_per_s(result.limit or 1)
    beside = Beside({n: fmean(seen) for n, seen in queue.items() if seen}, probe.rates())
    notes = [*found.notes, f"a request keeps the promise with {job.targets.text()}"]
    if probe.lag_ms is not None:
        notes.append(f"client lag p99 {probe.lag_ms:.2f} ms")
    if probe.num_stale:
        notes.append(stale_note(probe.num_stale))
    if probe.through_door:
        return dataclasses.replace(result, is_door=True), [*notes, DOOR], beside
    if job.confirms and result.limit is not None and throughput_per_s is not None:
        send = sender(server, requests, job.targets, timeout_s)
        end = start + settings.max_seconds
        # An interrupt leaves the runs out: the closed loop's result stands by itself.
        with suppress(KeyboardInterrupt):
            runs = confirm(result, throughput_per_s, send, lambda: end - time.monotonic())
            result = dataclasses.replace(result, open_runs=runs)
    return result, notes + found.keep(result, job.now), beside


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def write(folder: Path, result: Cliff, title: str, beside: Beside, notes: Sequence[str]) -> None:
    document = {"version": 2, "title": title, "notes": list(notes)}
    document |= {"queue_depth": beside.queue, "requests_per_s": beside.per_s}
    document |= dataclasses.asdict(result)
    (folder / "result.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "report.md").write_text(text(result, title, notes))
    (folder / "report.html").write_text(page(result, title, beside, notes))
    (folder / "plot.svg").write_text(plot(result, beside) + "\n")
