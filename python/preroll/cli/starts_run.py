"""The measuring half of `preroll starts`: options -> launcher -> raw file -> text."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from preroll import fingerprints, measurements
from preroll.cli.options import duration_s
from preroll.cli.starts_options import Options
from preroll.config import Stage, load_app
from preroll.engines.guess import engine_marks
from preroll.errors import InputError
from preroll.instruments.raw_lines import Header
from preroll.instruments.starts import run, totals_s
from preroll.instruments.starts_launch import Command, HolderLauncher, environment
from preroll.instruments.starts_raw import Launched, RawFile
from preroll.instruments.starts_ready import parse_ready, split_url
from preroll.instruments.starts_stage import command_of, free_port
from preroll.instruments.starts_text import distribution, one_start, waits_over
from preroll.instruments.starts_url import UrlLauncher

TIMEOUT = "1h"
WHAT = ("argv", "ready", "app", "stage", "url", "idle", "body", "timeout", "engine", "pty", "cwd")


def measure_starts(options: Options) -> int:
    raw = open_raw(options)
    options = resumed(options, raw) if options.resume else options
    count = options.run or int(raw.header.what["run"])
    print(f"raw samples: {raw.path}", file=sys.stderr)
    status = 0
    try:
        asyncio.run(launches(options, count, raw))
    except KeyboardInterrupt:
        print(f"interrupted; go on with --resume {raw.path}", file=sys.stderr)
        status = 130
    finally:
        raw.close()
        show(raw.samples)
    if status == 0 and options.app is not None:
        save(options, raw.samples)
    return status


async def launches(options: Options, count: int, raw: RawFile) -> None:
    if options.url is not None:
        await run(count, url_launcher(options), raw, on_each(options))
        return
    make = maker_of(options)
    root = raw.path.with_name(f"{raw.path.name}.state")
    async with HolderLauncher(root, make) as launcher:
        await run(count, launcher, raw, on_each(options))


def open_raw(options: Options) -> RawFile:
    if options.resume is not None:
        return RawFile.resume(options.resume)
    check(options)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    machine = {"device": fingerprints.device(), "driver": fingerprints.driver()}
    header = Header({"run": options.run, **what(options)}, machine)
    return RawFile(options.out or Path(f"starts-{stamp}.jsonl"), header)


def check(options: Options) -> None:
    """Raises InputError for options that do not go together."""
    if options.run is not None and not 1 <= options.run <= 100_000:
        raise InputError(f"--run {options.run}: allowed: 1 to 100000")
    kinds = [bool(options.words), options.app is not None, options.url is not None]
    if sum(kinds) != 1:
        raise InputError(
            "say what to launch: -- PROGRAM ARGUMENTS, or --app APP.toml, or --url URL"
        )
    if options.url is not None and options.idle is None:
        raise InputError("--url: a server is cold only after a rest; say how long: --idle 10m")
    engine_marks((), options.engine)  # raises for a name that is not an engine's


def what(options: Options) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(options, name) for name in WHAT if name != "argv"}
    values["argv"] = list(options.words)
    values["cwd"] = str(options.cwd or Path.cwd())
    return {k: str(v.absolute()) if isinstance(v, Path) else v for k, v in values.items()}


def resumed(options: Options, raw: RawFile) -> Options:
    """The options of the file; what the command line says beside them must be the same."""
    stored = {k: v for k, v in raw.header.what.items() if k in WHAT}
    asked = {k: v for k, v in what(options).items() if v and k not in ("pty", "cwd")}
    for key, value in asked.items():
        if stored.get(key) != value:
            raise InputError(
                f"{raw.path}: was measured with {key} {stored.get(key)!r}, not {value!r}"
            )
    values: dict[str, Any] = {k: v for k, v in stored.items() if k != "argv"}
    for key in ("app", "body", "cwd"):
        values[key] = Path(stored[key]) if stored.get(key) else None
    return replace(options, words=tuple(stored["argv"]), **values)


def url_launcher(options: Options) -> UrlLauncher:
    address, path = split_url(options.url or "")
    body = b""
    if options.body is not None:
        try:
            body = options.body.read_bytes()
        except OSError as error:
            raise InputError(f"--body {options.body}: {error.strerror}") from None
    idle_s, timeout_s = duration_s("--idle", options.idle or "0s"), timeout_of(options)
    return UrlLauncher(address, path, body, idle_s, timeout_s)


def maker_of(options: Options) -> Callable[[Path], Command]:
    if options.app is not None:
        stage, directory = stage_of(options)
        return lambda folder: command_of(stage, directory, folder)
    return lambda folder: program(options, folder)


def stage_of(options: Options) -> tuple[Stage, Path]:
    assert options.app is not None
    app = load_app(options.app)
    if options.stage is None and len(app.stages) == 1:
        return next(iter(app.stages.values())), app.directory
    if options.stage not in app.stages:
        raise InputError(f"--stage {options.stage}: allowed: {', '.join(app.stages)}")
    return app.stages[options.stage], app.directory


def program(options: Options, folder: Path) -> Command:
    """The command with `{port}` and `{socket}` filled in, anew for each launch."""
    asked = " ".join((*options.words, options.ready or ""))
    port = free_port() if "{port}" in asked else None
    filled = [
        w.replace("{port}", str(port)).replace("{socket}", f"{folder}/s") for w in options.words
    ]
    return Command(
        argv=tuple(filled),
        env=environment(),
        cwd=options.cwd or Path.cwd(),
        ready=parse_ready(options.ready, port),
        timeout_s=timeout_of(options),
        marks=engine_marks(options.words, options.engine),
        pty=options.pty,
    )


def timeout_of(options: Options) -> float:
    return duration_s("--timeout", options.timeout or TIMEOUT)


def on_each(options: Options) -> Callable[[Launched], None]:
    def show_one(launched: Launched) -> None:
        if launched.start is None:
            cause = (launched.failure or "").splitlines()[-1].strip()
            print(f"launch {launched.run} failed: {cause}", file=sys.stderr)
        elif options.url is not None:
            print(f"request {launched.run}: {launched.start.total_s:.3f} s")
        else:
            print("\n".join(one_start(launched.start, with_phases=options.phases)))
        sys.stdout.flush()

    return show_one


def show(launches: list[Launched]) -> None:
    starts = [launched.start for launched in launches if launched.start is not None]
    failed = len(launches) - len(starts)
    print()
    print("\n".join(distribution([start.total_s for start in starts])))
    if len(starts) > 1 and any(len(start.phases) > 1 for start in starts):
        print("\n".join(waits_over(starts)))
    if failed:
        print(f"failed  {failed}")


def save(options: Options, launches: list[Launched]) -> None:
    """Puts the starts of a stage into the measured file beside the app file."""
    assert options.app is not None
    stage, directory = stage_of(options)
    digests = fingerprints.DigestCache(fingerprints.cache_path())
    fingerprint = fingerprints.fingerprint(stage, directory, digests)
    entry = measurements.of_starts(stage.name, totals_s(launches), fingerprint, datetime.now(UTC))
    path = measurements.keep(options.app, entry)
    print(f"written to {path}; preroll check compares it with time-outs")
