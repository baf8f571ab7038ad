"""The options of `preroll ablate`; the command line derives its flags from these types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from preroll.cli.options import Flag
from preroll.instruments.ablation.state import Cache, Drop


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Variable:
    """What the variant has and the control has not: exactly one of these.

    Parameters
    ----------
    env: str
        NAME=VALUE sets a variable, NAME alone removes it.
    without_module: str
        A Python module; importing it, or anything below it, gives an empty stub.
    args: str
        Words added at the end of the command (--args="--a --b=1").
    cmd: str
        Another command altogether.
    """

    env: str | None = None
    without_module: str | None = None
    args: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    cmd: str | None = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Options:
    """How it is measured.

    Parameters
    ----------
    ready: str
        Ready when this URL answers 2xx, this port of this machine connects, or a line matches
        this regular expression. Default: the port of {port}, else the command's own end.
    health: str
        A URL that must answer 2xx after that, in every run.
    cache: Cache
        The state before each run: warm, cold, or as-is (recorded, not proved).
    drop: Drop
        With --cache cold: drop the files of this command, or all (root).
    pairs: int
        How many pairs (default 8; with --until the most, default 20).
    until: str
        Stop when decided, or when the change is shown to be below this share of the start (5%).
    segment: tuple[str, ...]
        Also tested: cpu (processor time of the tree), a wait, text of a phase's label, or
        FROM..TO (lines). May be repeated.
    predict: Path
        A JSON profile of the command: its exclusive cost is put beside the outcome.
    seed: int
        Of the order within the pairs.
    timeout: str
        How long a run may take.
    engine: str
        Whose log lines to read phases from; default: guessed from the command.
    pty: bool
        Give the command a terminal.
    explain: bool
        After the pairs, one run of each arm with the import hook, to show what grew.
    out: Path
        File of raw samples (default ablate-TIME.jsonl); it is written after each run.
    resume: Path
        Go on with this file; the command and everything else come from it.
    json: Path
        Also write the result as JSON to this file.
    """

    ready: str | None = None
    health: str | None = None
    cache: Cache = Cache.WARM
    drop: Drop = Drop.FILES
    pairs: int | None = None
    until: str | None = None
    segment: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    predict: Path | None = None
    seed: int = 1
    timeout: str = "1h"
    engine: str | None = None
    pty: Flag = False
    explain: bool = True
    out: Path | None = None
    resume: Path | None = None
    json: Path | None = None
