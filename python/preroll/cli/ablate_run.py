"""The measuring half of `preroll ablate`: options -> experiment -> raw file -> report."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from preroll import fingerprints
from preroll.cli.ablate_options import Options, Variable
from preroll.cli.options import duration_s
from preroll.engines.guess import engine_marks
from preroll.errors import InputError
from preroll.instruments.ablation import explain, export, predict, segments, text
from preroll.instruments.ablation.change import Change, Kind, one_change
from preroll.instruments.ablation.exact import MIN_PAIRS
from preroll.instruments.ablation.launch import Launcher, Subject
from preroll.instruments.ablation.measure import Design, Experiment, NeededError
from preroll.instruments.ablation.moved import Moved
from preroll.instruments.ablation.raw import RawFile, Run
from preroll.instruments.ablation.report import Report, report
from preroll.instruments.ablation.sequential import FIRST_LOOK, Plan, looks
from preroll.instruments.ablation.state import Cache, Drop, Keeper
from preroll.instruments.ablation.verdict import Outcome, Question
from preroll.instruments.raw_lines import Header
from preroll.instruments.starts_launch import environment

PAIRS = 8
MOST_PAIRS = 20
LIMIT = 1000
STATUS = {Outcome.INCONCLUSIVE: 3, Outcome.NEEDED: 5}
# Of the options, what an experiment is and what a raw file is gone on with.
WHAT = (
    *("ready", "health", "cache", "drop", "pairs", "until", "segment", "seed", "timeout"),
    *("engine", "pty"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """An experiment as the command line or an earlier raw file has it."""

    argv: tuple[str, ...]
    change: Change
    cwd: Path
    options: Options


@dataclass(slots=True)
class Found:
    """What an experiment came to beside its raw samples."""

    needed: str | None = None
    imports: tuple[Moved, ...] = ()
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False


def run(words: tuple[str, ...], variable: Variable, options: Options) -> int:
    asked, raw = opened(words, variable, options)
    prediction = prediction_of(asked)
    print(f"raw samples: {raw.path}", file=sys.stderr)
    found = Found()
    try:
        asyncio.run(measured(asked, raw, found))
    except KeyboardInterrupt:
        found.is_interrupted = True
        print(f"interrupted; go on with --resume {raw.path}", file=sys.stderr)
    finally:
        raw.close()
        result = report(
            raw.samples,
            question_of(asked.options),
            change=str(asked.change),
            cache=asked.options.cache,
            prediction=prediction,
            imports=found.imports,
            needed=found.needed,
            notes=found.notes,
        )
        show(result, options.json)
    return 130 if found.is_interrupted else STATUS.get(result.outcome, 0)


async def measured(asked: Asked, raw: RawFile, found: Found) -> None:
    options = asked.options
    keeper = Keeper(options.cache, options.drop)
    root = raw.path.with_name(f"{raw.path.name}.state").absolute()
    subject = subject_of(asked)
    async with Launcher(root, subject) as launcher:
        experiment = Experiment(design_of(options), launcher, keeper, raw, print_run)

        def learn(seen: set[str]) -> None:
            keeper.learn_candidates(seen, subject.argv, subject.cwd, subject.env)

        try:
            await experiment.run(learn)
        except NeededError as error:
            found.needed = str(error)
            return
        if options.explain:
            moved = await explain.imports(launcher, keeper, root)
            if isinstance(moved, str):
                found.notes = (moved,)
            else:
                found.imports = tuple(moved)


def print_run(run: Run) -> None:
    print(text.run_line(run), flush=True)


def show(result: Report, path: Path | None) -> None:
    print("\n" + "\n".join(text.report_lines(result)))
    if path is not None:
        path.write_text(json.dumps(export.to_json(result), indent=1) + "\n")


def opened(words: tuple[str, ...], variable: Variable, options: Options) -> tuple[Asked, RawFile]:
    """What is to be done and where it is written. Raises InputError."""
    if options.resume is not None:
        if words or variable != Variable():
            raise InputError("--resume: the file says what is compared; leave the rest out")
        raw = RawFile.resume(options.resume)
        return stored(raw, options), raw
    if not words:
        raise InputError("say what to start: preroll ablate … -- PROGRAM ARGUMENTS")
    given = {kind: getattr(variable, kind.replace("-", "_")) for kind in Kind}
    asked = Asked(words, one_change(given), Path.cwd(), options)
    check(options)
    prediction_of(asked)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    machine = {"device": fingerprints.device(), "driver": fingerprints.driver()}
    header = Header(what(asked), machine)
    return asked, RawFile(options.out or Path(f"ablate-{stamp}.jsonl"), header)


def check(options: Options) -> None:
    """Raises InputError for values that no experiment can have."""
    least = MIN_PAIRS if options.until is None else FIRST_LOOK
    if options.pairs is not None and not least <= options.pairs <= LIMIT:
        why = "fewer can never decide" if options.pairs < least else "that is a day's work"
        raise InputError(f"--pairs {options.pairs}: allowed: {least} to {LIMIT}; {why}")
    engine_marks((), options.engine)  # raises for a name that is not an engine's
    if options.health is not None and not options.health.startswith(("http://", "https://")):
        raise InputError(
            f"--health {options.health!r}: allowed: http://HOST:PORT/PATH or https://…"
        )
    duration_s("--timeout", options.timeout)
    design_of(options)


def what(asked: Asked) -> dict[str, Any]:
    values = {name: getattr(asked.options, name) for name in WHAT}
    change = {"kind": asked.change.kind, "text": asked.change.text}
    return {"argv": list(asked.argv), "change": change, "cwd": str(asked.cwd), **values}


def stored(raw: RawFile, options: Options) -> Asked:
    """The experiment of an earlier file; `predict`, `json` and `explain` are this call's."""
    stored = raw.header.what
    try:
        values = {name: stored[name] for name in WHAT}
        values |= {
            "cache": Cache(stored["cache"]),
            "drop": Drop(stored["drop"]),
            "segment": tuple(stored["segment"]),
        }
        change = Change(Kind(stored["change"]["kind"]), stored["change"]["text"])
        return Asked(tuple(stored["argv"]), change, Path(stored["cwd"]), replace(options, **values))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{raw.path}: its header is not one of preroll ablate ({error!r})"
        ) from None


def design_of(options: Options) -> Design:
    usual = PAIRS if options.until is None else MOST_PAIRS
    found = tuple(segments.parse(name) for name in options.segment)
    return Design(options.pairs or usual, options.seed, found, question_of(options))


def question_of(options: Options) -> Question:
    if options.until is None:
        return Question(segments=options.segment)
    plan = Plan(looks(options.pairs or MOST_PAIRS))
    return Question(segments=options.segment, margin=share(options.until), plan=plan)


def share(until: str) -> float:
    """ "5%" -> 0.05. Raises InputError."""
    try:
        value = float(until.removesuffix("%")) / 100
    except ValueError:
        value = 0.0
    if not (until.endswith("%") and 0 < value < 1):
        raise InputError(f"--until {until}: allowed: a share of the start such as 5%")
    return value


def subject_of(asked: Asked) -> Subject:
    options = asked.options
    return Subject(
        argv=asked.argv,
        env=environment(),
        cwd=asked.cwd,
        change=asked.change,
        ready=options.ready,
        health=options.health,
        timeout_s=duration_s("--timeout", options.timeout),
        marks=engine_marks(asked.argv, options.engine),
        pty=options.pty,
    )


def prediction_of(asked: Asked) -> predict.Prediction | None:
    path = asked.options.predict
    if path is None:
        return None
    if asked.change.kind is not Kind.MODULE:
        raise InputError(
            "--predict: a profile predicts what a module's removal saves; it goes with "
            "--without-module"
        )
    return predict.read(path, asked.change.text)
