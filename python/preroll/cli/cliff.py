"""`preroll cliff`: the level of concurrency at which a server stops keeping its promise."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from preroll.cli.call import call
from preroll.cli.cliff_search import Job, Limits, search, write
from preroll.cli.cliff_target import find, loaded, promise_of
from preroll.cli.load_options import Promise, Request
from preroll.errors import InputError
from preroll.instruments.cliff.report import text
from preroll.instruments.load.result import Targets

HELP = f"""{__doc__}

    preroll cliff http://127.0.0.1:9001 --slo-ttft 800ms
    preroll cliff app.toml chat
"""


def main(arguments: list[str]) -> int:
    return call(cliff_app(), arguments)


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
        served: Annotated[bool, Parameter(negative=())] = False,
        confirm: bool = True,
        state: Path | None = None,
        out: Path | None = None,
        as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    ) -> int:
        """Gallops to collapse, bisects three thresholds, goes down without draining.

        Parameters
        ----------
        target: str
            http://HOST:PORT, unix:/socket, or an app file with a STAGE.
        stage: str
            A stage of the app file: a replica is started for the search, with no door in front.
        served: bool
            Take a replica of the running app out of its door's rotation instead.
        confirm: bool
            Open-loop runs at the limit that was found.
        state: Path
            State directory of the app that is being served, when it is not the usual one.
        out: Path
            Folder for records and reports; preroll-cliff-DATE when left out.
        json: bool
            The result as JSON.
        """
        request, limits = request or Request(), limits or Limits()
        found, targets = find(target, stage), (promise or Promise()).targets()
        if targets == Targets():
            targets = promise_of(found)
        if targets == Targets():
            raise InputError(
                "a promise is needed: --slo-ttft, --slo-gap, --slo-e2e, or a stage's slo.ttft_p95"
            )
        now = datetime.now(UTC)
        folder = out or Path(f"preroll-cliff-{now:%Y%m%d-%H%M%S}")
        folder.mkdir(parents=True, exist_ok=True)
        job = Job(request, targets, limits, confirm, folder, now)
        with loaded(found, served, state) as target_found:
            result, notes, beside = search(target_found, job)
        title = f"cliff of {found.name}, {now:%Y-%m-%d %H:%M} UTC"
        write(folder, result, title, beside, notes)
        print(json.dumps(dataclasses.asdict(result)) if as_json else text(result, title, notes))
        return 0 if result.limit is not None else 3

    return app
