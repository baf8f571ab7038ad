"""`preroll cliff`: the level of concurrency at which a server stops keeping its promise."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from preroll.cli.call import call
from preroll.cli.cliff_target import Found, find, queue_depth
from preroll.cli.load_options import Promise, Request, seconds
from preroll.errors import InputError
from preroll.instruments.cliff.live import LiveProbe
from preroll.instruments.cliff.report import page, text
from preroll.instruments.cliff.search import Cliff, Search, Settings
from preroll.instruments.load.requests import Server, spill
from preroll.instruments.load.result import Targets

HELP = f"""{__doc__}

    preroll cliff http://127.0.0.1:9001 --slo-ttft 800ms
    preroll cliff app.toml chat --slo-ttft 800ms
"""

DOOR = "this is a DOOR cliff: it shows when a Preroll door queues and refuses, and sets no limit"


def main(arguments: list[str]) -> int:
    return call(cliff_app(), arguments)


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


def cliff_app() -> cyclopts.App:
    app = cyclopts.App(name="preroll cliff", help=HELP, help_format="plaintext", version_flags=[])

    @app.default
    def cliff(
        target: str,
        stage: str | None = None,
        /,
        *,
        request: Request | None = None,
        promise: Promise | None = None,
        limits: Limits | None = None,
        state: Path | None = None,
        out: Path | None = None,
        as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    ) -> int:
        """Gallops to collapse, bisects three thresholds, goes down without draining.

        Parameters
        ----------
        target: str
            http://HOST:PORT, unix:/socket, or an app file with a STAGE that is being served.
        stage: str
            A stage of the app file: one of its replicas is loaded, past the door and its queue.
        state: Path
            State directory of the app that is being served, when it is not the usual one.
        out: Path
            Folder for records and reports; preroll-cliff-DATE when left out.
        json: bool
            The result as JSON.
        """
        request, limits = request or Request(), limits or Limits()
        found = find(target, stage, state)
        settings, targets = limits.settings(found.server), (promise or Promise()).targets()
        if targets == Targets():
            raise InputError("a promise is needed: --slo-ttft, --slo-gap or --slo-e2e")
        now = datetime.now(UTC)
        folder = out or Path(f"preroll-cliff-{now:%Y%m%d-%H%M%S}")
        folder.mkdir(parents=True, exist_ok=True)
        requests = spill(request.templates(found.server), folder)
        timeout_s = seconds(limits.timeout, "--timeout") or 60.0
        depth: dict[int, float] = {}
        probe = LiveProbe(found.server, requests, targets, folder / "records.ndjson", timeout_s)
        title = f"cliff of {found.name}, {now:%Y-%m-%d %H:%M} UTC"
        result, notes = _search(found, probe, settings, depth, now)
        _write(folder, result, title, depth, notes)
        print(json.dumps(dataclasses.asdict(result)) if as_json else text(result, title, notes))
        return 0 if result.limit is not None else 3

    return app


def _search(
    found: Found, probe: LiveProbe, settings: Settings, depth: dict[int, float], now: datetime
) -> tuple[Cliff, list[str]]:
    """Runs the search; what it found, and what must be said beside it."""
    with probe:
        probe.on_level = lambda level: queue_depth(found.server, level, depth)
        search = Search(probe, settings, say=lambda line: print(line, file=sys.stderr))
        result = search.run()
    notes = [*found.notes]
    if probe.lag_ms is not None:
        notes.append(f"client lag p99 {probe.lag_ms:.2f} ms")
    if probe.through_door:
        notes.append(DOOR)
        result = dataclasses.replace(result, is_door=True)
    else:
        notes += found.keep(result, now)
    return result, notes


def _write(
    folder: Path, result: Cliff, title: str, depth: dict[int, float], notes: Sequence[str]
) -> None:
    document = {"version": 1, "title": title, "notes": list(notes), "queue_depth": depth}
    document |= dataclasses.asdict(result)
    (folder / "result.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "report.md").write_text(text(result, title, notes))
    (folder / "report.html").write_text(page(result, title, depth, notes))
