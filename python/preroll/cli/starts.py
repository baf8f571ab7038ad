"""`preroll starts`: what each start was spent on; or measure N cold launches of anything."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from preroll import events
from preroll.cli.call import call
from preroll.cli.place import state_of
from preroll.core import Start
from preroll.errors import InputError
from preroll.instruments.starts_raw import start_to_json
from preroll.instruments.starts_text import distribution, one_start, waits_over

Flag = Annotated[bool, Parameter(negative=())]
HELP = f"""{__doc__}

    preroll starts [NAME]                         the starts of a served app
    preroll starts --run N [OPTIONS] -- PROGRAM ARGUMENTS     N launches of a program
    preroll starts --run N --app APP.toml [--stage S]         N launches of a stage
    preroll starts --run N --url URL --idle 10m               N cold requests
"""


def main(arguments: list[str]) -> int:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return call(command(arguments[at + 1 :]), arguments[:at])


def command(words: Sequence[str]) -> cyclopts.App:
    """`words`: the program after `--`."""
    app = cyclopts.App(name="preroll starts", help=HELP, version_flags=[])

    @app.default
    def starts(
        name: str | None = None,
        /,
        *,
        state: Path | None = None,
        stage: str | None = None,
        last: int = 5,
        phases: Flag = False,
        as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
        run: int | None = None,
        ready: str | None = None,
        app: Path | None = None,
        url: str | None = None,
        idle: str | None = None,
        body: Path | None = None,
        timeout: str | None = None,
        engine: str | None = None,
        pty: Flag = False,
        out: Path | None = None,
        resume: Path | None = None,
    ) -> int:
        """Shows or measures starts.

        Parameters
        ----------
        name: str
            App file or name; may be left out when only one app is served.
        state: Path
            State directory, instead of a name.
        stage: str
            Only this stage.
        last: int
            How many starts to show as bars.
        phases: bool
            Every phase with the engine's own words.
        as_json: bool
            One JSON object per start.
        run: int
            Measure: how many launches that become ready.
        ready: str
            Ready when this URL answers 2xx, this port of this machine connects, or a line matches
            this regular expression. Default: the port of {port}, else the program's own end.
        app: Path
            Launch a stage of this app file as serve would; the result goes to its measured file.
        url: str
            Time cold requests to this URL instead of launching anything.
        idle: str
            With --url: time without a request before each one, such as 10m.
        body: Path
            With --url: a JSON file to POST.
        timeout: str
            How long a launch may take (default 1h).
        engine: str
            Whose log lines to read the waits from; default: guessed from the program.
        pty: bool
            Give the program a terminal.
        out: Path
            File of raw samples (default starts-TIME.jsonl); it is written after each launch.
        resume: Path
            Go on with this file.
        """
        measure = {"--ready": ready, "--app": app, "--url": url, "--resume": resume, "--out": out}
        if run is not None or resume is not None:
            from preroll.cli.starts_run import Options, measure_starts

            options = Options(
                words=tuple(words), run=run, ready=ready, app=app, stage=stage, url=url,
                idle=idle, body=body, timeout=timeout, engine=engine, pty=pty, out=out,
                resume=resume, phases=phases,
            )  # fmt: skip
            return measure_starts(options)
        given = [option for option, value in measure.items() if value is not None]
        if words or given:
            what = given[0] if given else f"-- {words[0]}"
            raise InputError(f"{what}: say how many launches with --run N")
        return show_log(name, state, stage, last, phases=phases, as_json=as_json)

    return app


def show_log(
    name: str | None,
    state: Path | None,
    stage: str | None,
    last: int,
    *,
    phases: bool,
    as_json: bool,
) -> int:
    where = state_of(name, state)
    found = [s for s in events.iter_starts(where.events) if stage in (None, s.stage)]
    if as_json:
        for start in found:
            print(json.dumps(start_to_json(start)))
        return 0
    if not found:
        print(f"no starts in {where.events}", file=sys.stderr)
    by_stage = sorted(found, key=lambda s: s.stage)
    for key, group in groupby(by_stage, key=lambda s: s.stage):
        show_stage(key, list(group), last, phases=phases)
    return 0


def show_stage(stage: str, found: list[Start], last: int, *, phases: bool) -> None:
    for start in found[-last:] if last > 0 else []:
        print("\n".join(one_start(start, with_phases=phases)) + "\n")
    print(f"stage {stage}")
    print("\n".join(f"  {line}" for line in distribution([s.total_s for s in found])))
    print("\n".join(waits_over(found)) + "\n")
