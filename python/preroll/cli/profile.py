"""`preroll profile`: where a start's time goes, as rows that sum to the total."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import cyclopts

from preroll.cli.call import call
from preroll.cli.options import duration_s
from preroll.cli.profile_options import Gate, Options, Outputs
from preroll.errors import InputError
from preroll.instruments import startup
from preroll.instruments.startup import diff, profile_file, text
from preroll.instruments.startup.base import Outcome, Profile

HELP = f"""{__doc__}

    preroll profile [OPTIONS] -- PROGRAM …     run it once, until it is ready
    preroll profile show FILE [OPTIONS]        an earlier profile again, or as another format
    preroll profile diff BEFORE AFTER          two profiles side by side
"""


def main(arguments: list[str]) -> int:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return call(command(arguments[at + 1 :]), arguments[:at])


def command(words: Sequence[str]) -> cyclopts.App:
    """`words`: the program after `--`."""
    app = cyclopts.App(name="preroll profile", help=HELP, version_flags=[], help_format="plaintext")

    @app.default
    def profile(
        *,
        how: Options | None = None,
        outputs: Outputs | None = None,
        gate: Gate | None = None,
    ) -> int:
        """Profiles one start."""
        outputs, gate = outputs or Outputs(), gate or Gate()
        baseline, limit = check_gate(gate)
        check_outputs(outputs)
        found = measure(how or Options(), words)
        path = outputs.out or Path(f"profile-{datetime.now(UTC):%Y%m%d-%H%M%S}.json")
        profile_file.write(found, path)
        print(f"written to {path}", file=sys.stderr)
        export(found, outputs)
        return verdict(found, baseline, limit)

    @app.command
    def show(file: Path, /, *, outputs: Outputs | None = None) -> int:
        """An earlier profile again, or as another format.

        Parameters
        ----------
        file: Path
            A profile that `preroll profile` wrote.
        """
        outputs = outputs or Outputs()
        check_outputs(outputs)
        found = profile_file.read(file)
        if outputs.out is not None:
            profile_file.write(found, outputs.out)
        export(found, outputs)
        return 0

    @app.command(name="diff")
    def diff_(before: Path, after: Path, /) -> int:
        """Two profiles side by side: causes, labels, imports.

        Parameters
        ----------
        before: Path
            The earlier profile.
        after: Path
            The later one.
        """
        print("\n".join(diff.report(profile_file.read(before), profile_file.read(after))))
        return 0

    return app


def measure(how: Options, words: Sequence[str]) -> Profile:
    return startup.run(
        words,
        how.ready,
        timeout_s=duration_s("--timeout", how.timeout),
        hook=how.hook,
        recorder=how.recorder,
        engine=how.engine,
        pty=how.pty,
    )


def check_gate(gate: Gate) -> tuple[Profile | None, float | None]:
    """The baseline and the growth that it allows; read before anything runs."""
    if gate.fail_above is not None and gate.baseline is None:
        raise InputError("--fail-above needs --baseline FILE to compare with")
    limit = None
    if gate.fail_above is not None:
        number = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", gate.fail_above)
        if number is None:
            raise InputError(f"--fail-above {gate.fail_above}: allowed: a share such as 10%")
        limit = float(number[1]) / 100
    return profile_file.read(gate.baseline) if gate.baseline else None, limit


def check_outputs(outputs: Outputs) -> None:
    """A folder that is missing is better said before a start of minutes than after it."""
    for path in (outputs.out, outputs.html, outputs.perfetto, outputs.speedscope):
        if path is not None and not path.absolute().parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.absolute().parent}")


def export(found: Profile, outputs: Outputs) -> None:
    if outputs.html is not None:
        from preroll.instruments.startup.page import html

        outputs.html.write_text(html(found))
    if outputs.perfetto is not None:
        from preroll.instruments.startup.perfetto import trace

        outputs.perfetto.write_bytes(trace(found))
    if outputs.speedscope is not None:
        from preroll.instruments.startup.speedscope import document

        outputs.speedscope.write_text(json.dumps(document(found)))
    if outputs.as_json:
        print(json.dumps(profile_file.to_json(found)))
    else:
        print("\n".join(text.report(found, colours=sys.stdout.isatty())))


def verdict(found: Profile, baseline: Profile | None, limit: float | None) -> int:
    if baseline is not None:
        print("\n".join(diff.report(baseline, found)), file=sys.stderr)
    if found.outcome is not Outcome.READY:
        return 130 if found.outcome is Outcome.INTERRUPTED else 1
    if baseline is not None and limit is not None:
        grown = diff.growth(baseline, found)
        if grown > limit:
            print(f"slower than the baseline by {grown:.1%}; allowed: {limit:.1%}", file=sys.stderr)
            return 1
    return 0
