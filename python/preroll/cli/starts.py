"""`preroll starts`: what each start was spent on; or measure N cold launches of anything."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace

import cyclopts

from preroll import events
from preroll.cli.call import call
from preroll.cli.place import state_of
from preroll.cli.starts_options import Options, Shown
from preroll.core import Start
from preroll.errors import InputError
from preroll.instruments.starts_raw import start_to_json
from preroll.instruments.starts_text import distribution, one_start, waits_over
from preroll.serve.statedir import StateDir

HELP = f"""{__doc__}

    preroll starts [NAME]                            the starts of a served app
    preroll starts --run N [OPTIONS] -- PROGRAM …    N launches of a program
    preroll starts --run N --app APP.toml [--stage S]    N launches of a stage
    preroll starts --run N --url URL --idle 10m          N cold requests
"""


def main(arguments: list[str]) -> int:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return call(command(arguments[at + 1 :]), arguments[:at])


def command(words: Sequence[str]) -> cyclopts.App:
    """`words`: the program after `--`."""
    app = cyclopts.App(name="preroll starts", help=HELP, version_flags=[], help_format="plaintext")

    @app.default
    def starts(
        name: str | None = None,
        /,
        *,
        shown: Shown | None = None,
        measured: Options | None = None,
    ) -> int:
        """Shows or measures starts.

        Parameters
        ----------
        name: str
            App file or name; may be left out when only one app is served.
        """
        shown, options = shown or Shown(), measured or Options()
        if options.run is not None or options.resume is not None:
            from preroll.cli.starts_run import measure_starts

            return measure_starts(
                replace(options, words=tuple(words), stage=shown.stage, phases=shown.phases)
            )
        if words or options != Options():
            raise InputError("to measure, say how many launches with --run N")
        return show_log(state_of(name, shown.state), shown)

    return app


def show_log(where: StateDir, shown: Shown) -> int:
    found = [s for s in events.iter_starts(where.events) if shown.stage in (None, s.stage)]
    if shown.as_json:
        for start in found:
            print(json.dumps(start_to_json(start)))
        return 0
    if not found:
        print(f"no starts in {where.events}", file=sys.stderr)
    # A fork and a spawn are different things to start: never one distribution.
    kinds = sorted({(start.stage, start.is_forked) for start in found})
    for stage, is_forked in kinds:
        group = [s for s in found if (s.stage, s.is_forked) == (stage, is_forked)]
        show_stage(f"{stage} (forked)" if is_forked else stage, group, shown)
    return 0


def show_stage(stage: str, found: list[Start], shown: Shown) -> None:
    for start in found[-shown.last :] if shown.last > 0 else []:
        print("\n".join(one_start(start, with_phases=shown.phases)) + "\n")
    print(f"stage {stage}")
    print("\n".join(f"  {line}" for line in distribution([s.total_s for s in found])))
    print("\n".join(waits_over(found)) + "\n")
