"""`preroll check APP.toml`: every error of an app file, and what would go wrong on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import cyclopts

from preroll import measurements
from preroll.cli.call import call
from preroll.config import App, Stage, load_app
from preroll.config.machine import misfits, this_machine
from preroll.core import Measurement
from preroll.engines.base import get_engine
from preroll.errors import InputError, RefusedError
from preroll.fingerprints import DigestCache, cache_path, fingerprint
from preroll.quantiles import quantile
from preroll.serve.limits import with_limits

app = cyclopts.App(name="preroll check", help=__doc__, version_flags=[])


@app.default
def check(
    app_file: Path,
    /,
    *,
    resolved: Annotated[bool, cyclopts.Parameter(negative=())] = False,
    strict: Annotated[bool, cyclopts.Parameter(negative=())] = False,
) -> int:
    """Checks an app file. Exit status 2 with every error, 0 otherwise.

    Parameters
    ----------
    app_file: Path
        The app file.
    resolved: bool
        Print the app with every default filled in, as JSON (seconds, bytes).
    strict: bool
        Exit status 1 when there is a warning.
    """
    limits = with_limits(load_app(app_file))
    loaded = limits.app
    warnings = [*misfits(loaded, this_machine()), *limits.warnings, *slow_starts(loaded, app_file)]
    if resolved:
        print(json.dumps(as_json(loaded), indent=1))
    else:
        names = ", ".join(f"{s.name} ({s.engine})" for s in loaded.stages.values())
        print(f"{app_file}: ok; stages: {names}; routes: {len(loaded.routes)}")
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return 1 if strict and warnings else 0


def as_json(loaded: App) -> dict[str, Any]:
    """The app with defaults; secrets are references, so nothing secret is in it."""
    return {
        "serve": loaded.serve.model_dump(mode="json"),
        "stages": {
            name: {**stage.model_dump(mode="json"), **_from_engine(stage)}
            for name, stage in loaded.stages.items()
        },
        "routes": [route.model_dump(mode="json") for route in loaded.routes],
    }


def _from_engine(stage: Stage) -> dict[str, Any]:
    engine = get_engine(stage.engine)
    return {
        "models": list(engine.models(stage)),
        "max_concurrency": engine.slots(stage),
        "start_timeout_s": stage.start_timeout_s or engine.default_start_timeout_s,
        "engine_version": engine.version(stage),
    }


def slow_starts(loaded: App, path: Path) -> Iterator[str]:
    """Where a measured start is longer than somebody waits: a route's client, a held request."""
    entries = measurements.read(measurements.measured_path(path))
    digests = DigestCache(cache_path())
    for name, stage in loaded.stages.items():
        if not any(m.stage == name and m.kind == measurements.START for m in entries):
            continue
        try:
            now = fingerprint(stage, loaded.directory, digests)
        except InputError:
            continue  # its model is not here: `misfits` has said so
        found = measurements.match(entries, name, measurements.START, now)
        if found.current is None:
            yield f"stage.{name}: {found.sentence(datetime.now(UTC))}: not compared with time-outs"
            continue
        seconds, words = start_length(found.current)
        waits = [("queue.start_hold", stage.queue.start_hold_s)]
        waits += [
            (f"timeout of route {route.path}", route.timeout_s)
            for route in loaded.routes
            if route.stage == name and route.timeout_s is not None
        ]
        for what, limit_s in waits:
            if seconds > limit_s:
                yield (
                    f"stage.{name}: {words} is {seconds:.1f} s, above the {what} of {limit_s:g} s: "
                    "a request that waits for a start would be given up first"
                )


def start_length(entry: Measurement) -> tuple[float, str]:
    """The p95 of measured starts, or the slowest one while there are too few for a p95."""
    try:
        return quantile(entry.samples, 0.95), f"the p95 of {len(entry.samples)} starts"
    except RefusedError:
        return max(entry.samples), f"the slowest of {len(entry.samples)} measured starts"


def main(arguments: list[str]) -> int:
    return call(app, arguments)
