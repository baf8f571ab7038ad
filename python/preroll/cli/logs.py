"""`preroll logs`: what replicas printed, stamped from outside; -f follows."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from preroll.backends.base import Line
from preroll.backends.local import LocalBackend
from preroll.cli.call import call
from preroll.cli.place import state_of
from preroll.errors import InputError, PrerollError
from preroll.serve.record import ReplicaRecord
from preroll.serve.statedir import StateDir, read_json
from preroll.serve.survey import existing

app = cyclopts.App(name="preroll logs", help=__doc__, version_flags=[])

RESCAN_S = 0.5
"""How soon `-f` notices a new replica."""


@app.default
def logs(
    of: str | None = None,
    /,
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative=())] = False,
    lines: Annotated[int, Parameter(name=["--lines", "-n"])] = 100,
    state: Path | None = None,
    app: str | None = None,
) -> int:
    """Prints the output of the door and the replicas, oldest first.

    Parameters
    ----------
    of: str
        A stage or a replica; all of them when left out.
    follow: bool
        Go on with what is printed from now on, by new replicas too.
    lines: int
        How many of the last lines of each one.
    state: Path
        State directory.
    app: str
        App file or name, instead of a state directory.
    """
    where = existing(state_of(app, state))
    with suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(print_logs(where, of, lines, follow=follow))
    return 0


def members(state: StateDir, of: str | None) -> list[str]:
    """Ids of the holders that a stage or replica name means, oldest first."""
    folders = sorted((f for f in state.holders.iterdir() if f.is_dir()), key=_begun)
    if of is None:
        return [f.name for f in folders]
    found = [f.name for f in folders if of in (f.name, _stage(state, f.name))]
    return found or [f.name for f in folders if f.name.startswith(of)]


def _begun(folder: Path) -> float:
    with suppress(OSError):
        return (folder / "spec.json").stat().st_mtime
    return 0.0


def _stage(state: StateDir, holder_id: str) -> str | None:
    record = ReplicaRecord.from_json(read_json(state.replica_file(holder_id)))
    return record.stage if record else None


async def print_logs(state: StateDir, of: str | None, count: int, *, follow: bool) -> None:
    ids = members(state, of)
    if not ids and not follow:
        raise InputError(f"nothing called {of!r} has run in {state.root}; `preroll ps` shows what")
    backend = LocalBackend(state.root)
    known: set[str] = set()
    tasks: set[asyncio.Task[None]] = set()
    while True:
        for one in ids:
            if one not in known:
                known.add(one)
                tasks.add(asyncio.create_task(print_one(backend, one, count, follow=follow)))
        if not follow:
            await asyncio.gather(*tasks)
            return
        await asyncio.sleep(RESCAN_S)
        ids = members(state, of)


async def print_one(backend: LocalBackend, holder_id: str, count: int, *, follow: bool) -> None:
    try:
        status = await backend.client(holder_id).status()
        since = max(0, status.lines - count)
        async for line in backend.lines(holder_id, since, follow=follow):
            write(holder_id, line)
    except PrerollError:
        for text in last_of_file(backend.folder(holder_id) / "log", count):
            sys.stdout.write(f"{holder_id}  {text}\n")
    sys.stdout.flush()


def last_of_file(path: Path, count: int) -> list[str]:
    """The last lines of an ended process's log, as the holder wrote them."""
    try:
        return path.read_text(errors="replace").splitlines()[-count:] if count else []
    except OSError:
        return []


def write(holder_id: str, line: Line) -> None:
    wall_s = time.time() - (time.monotonic_ns() - line.t_ns) / 1e9
    stamp = time.strftime("%H:%M:%S", time.localtime(wall_s)) + f".{int(wall_s % 1 * 1000):03d}"
    sys.stdout.write(f"{stamp}  {holder_id}  {line.text}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    return call(app, arguments)
