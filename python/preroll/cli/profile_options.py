"""The options of `preroll profile`; the command line derives its flags from these types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from preroll.cli.options import Flag


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Options:
    """How the command is run and looked at.

    Parameters
    ----------
    ready: str
        Ready when this URL answers 2xx, this port of this machine connects, or a line matches
        this regular expression. Default: the port of {port}, else the program's own end.
    timeout: str
        How long it may take to get ready (default 1h); a partial profile is kept.
    hook: bool
        Record imports in Python processes, for this run only.
    recorder: str
        auto, tracefs (kernel tracepoints, as root), proc (sampled), or off (stamps only).
    engine: str
        Whose log lines are known; default: guessed from the program.
    pty: bool
        Give the program a terminal.
    """

    ready: str | None = None
    timeout: str = "1h"
    hook: Annotated[bool, Parameter(name="--hook", negative="--no-hook")] = True
    recorder: str = "auto"
    engine: str | None = None
    pty: Flag = False


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the profile goes.

    Parameters
    ----------
    out: Path
        The profile as JSON (default profile-TIME.json).
    html: Path
        One self-contained page.
    perfetto: Path
        A trace for ui.perfetto.dev (.pftrace).
    speedscope: Path
        A file for speedscope.app.
    as_json: bool
        The profile as JSON on the terminal, instead of the report.
    """

    out: Path | None = None
    html: Path | None = None
    perfetto: Path | None = None
    speedscope: Path | None = None
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Gate:
    """For CI.

    Parameters
    ----------
    baseline: Path
        An earlier profile; the difference is shown.
    fail_above: str
        Exit status 1 when the start is slower than the baseline by more than this, such as 10%.
    """

    baseline: Path | None = None
    fail_above: str | None = None
