"""The options of `preroll starts`; the command line derives its flags from these types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from preroll.cli.options import Flag


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Shown:
    """What of the log is shown.

    Parameters
    ----------
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
    """

    state: Path | None = None
    stage: str | None = None
    last: int = 5
    phases: Flag = False
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Options:
    """What is launched, and when it counts as ready.

    Parameters
    ----------
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

    run: int | None = None
    ready: str | None = None
    app: Path | None = None
    url: str | None = None
    idle: str | None = None
    body: Path | None = None
    timeout: str | None = None
    engine: str | None = None
    pty: Flag = False
    out: Path | None = None
    resume: Path | None = None
    words: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    stage: Annotated[str | None, Parameter(parse=False)] = None
    phases: Annotated[bool, Parameter(parse=False)] = False
    cwd: Annotated[Path | None, Parameter(parse=False)] = None
