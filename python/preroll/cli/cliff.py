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
from preroll.cli.cliff_target import find, queue_depth
from preroll.cli.load import seconds
from preroll.cli.load_inputs import header_pairs, model_of, prompts_from
from preroll.errors import InputError
from preroll.instruments.cliff.live import LiveProbe
from preroll.instruments.cliff.report import page, text
from preroll.instruments.cliff.search import Cliff, Search, Settings
from preroll.instruments.load.requests import Ask, Server, spill, template
from preroll.instruments.load.result import Targets

Flag = Annotated[bool, Parameter(negative=())]
HELP = f"""{__doc__}

    preroll cliff http://127.0.0.1:9001 --slo-ttft 800ms
    preroll cliff app.toml chat --slo-ttft 800ms
"""

DOOR = "this is a DOOR cliff: it shows when a Preroll door queues and refuses, and sets no limit"


def main(arguments: list[str]) -> int:
    return call(cliff_app(), arguments)


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the server."""

    api: Annotated[str, Parameter(help="chat, completions, embeddings, speech or http")] = "chat"
    model: Annotated[str | None, Parameter(help="asked of /v1/models when left out")] = None
    max_tokens: Annotated[int, Parameter(help="tokens of an answer at most")] = 64
    prompts: Annotated[Path | None, Parameter(help="one prompt a line")] = None
    prompt_words: Annotated[int, Parameter(help="length of built-in prompts")] = 64
    method: Annotated[str, Parameter(help="for --api http")] = "POST"
    body: Annotated[Path | None, Parameter(help="body for --api http")] = None
    header: Annotated[Sequence[str], Parameter(help="`name: value`, may repeat")] = ()
    key_env: Annotated[str | None, Parameter(help="variable that holds the API key")] = None

    def templates(self, server: Server) -> list[dict[str, object]]:
        ask = Ask(
            api=self.api,
            model=self.model if self.model is not None else model_of(server, self.api),
            max_tokens=self.max_tokens,
            headers=header_pairs(self.header, self.key_env),
            method=self.method,
            body="" if self.body is None else self.body.read_text(),
        )
        asked = prompts_from(ask, self.prompts, self.prompt_words, None)
        return [template(server, a, words) for a, words in asked]


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, slots=True)
class Promise:
    """What counts as a failure, besides an error."""

    slo_ttft: Annotated[str | None, Parameter(help="time to first content")] = None
    slo_gap: Annotated[str | None, Parameter(help="longest gap of a stream (a stall)")] = None
    slo_e2e: Annotated[str | None, Parameter(help="end-to-end time (a deadline)")] = None

    def targets(self) -> Targets:
        def ms(value: str | None, name: str) -> float | None:
            found = seconds(value, name)
            return None if found is None else found * 1000

        targets = Targets(
            ttft_ms=ms(self.slo_ttft, "--slo-ttft"),
            gap_ms=ms(self.slo_gap, "--slo-gap"),
            e2e_ms=ms(self.slo_e2e, "--slo-e2e"),
        )
        if targets == Targets():
            raise InputError("a promise is needed: --slo-ttft, --slo-gap or --slo-e2e")
        return targets


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
    app = cyclopts.App(name="preroll cliff", help=HELP, version_flags=[])

    @app.default
    def cliff(
        target: str,
        stage: str | None = None,
        /,
        *,
        request: Request = Request(),
        promise: Promise = Promise(),
        limits: Limits = Limits(),
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
        out: Path
            Folder for records and reports; preroll-cliff-DATE when left out.
        json: bool
            The result as JSON.
        """
        found = find(target, stage)
        settings = limits.settings(found.server)
        now = datetime.now(UTC)
        folder = out or Path(f"preroll-cliff-{now:%Y%m%d-%H%M%S}")
        folder.mkdir(parents=True, exist_ok=True)
        requests = spill(request.templates(found.server), folder)
        timeout_s = seconds(limits.timeout, "--timeout") or 60.0
        depth: dict[int, float] = {}
        records = folder / "records.ndjson"
        with LiveProbe(found.server, requests, promise.targets(), records, timeout_s) as probe:
            probe.on_level = lambda level: queue_depth(found.server, level, depth)
            search = Search(probe, settings, say=lambda line: print(line, file=sys.stderr))
            result = search.run()
        title = f"cliff of {found.name}, {now:%Y-%m-%d %H:%M} UTC"
        notes = [*found.notes]
        if probe.lag_ms is not None:
            notes.append(f"client lag p99 {probe.lag_ms:.2f} ms")
        if probe.through_door:
            notes.append(DOOR)
            result = dataclasses.replace(result, is_door=True)
        else:
            notes += found.keep(result, now)
        _write(folder, result, title, depth, notes)
        print(json.dumps(dataclasses.asdict(result)) if as_json else text(result, title, notes))
        return 0 if result.limit is not None else 3

    return app


def _write(
    folder: Path, result: Cliff, title: str, depth: dict[int, float], notes: Sequence[str]
) -> None:
    document = {"version": 1, "title": title, "notes": list(notes), "queue_depth": depth}
    document |= dataclasses.asdict(result)
    (folder / "result.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "report.md").write_text(text(result, title, notes))
    (folder / "report.html").write_text(page(result, title, depth, notes))
