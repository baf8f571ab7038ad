"""`preroll stop`: ends control, door and every replica of an app; nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import cyclopts

from preroll.cli.call import call
from preroll.cli.place import state_of
from preroll.errors import UnavailableError
from preroll.serve.statedir import StateDir, owner
from preroll.serve.survey import end_all, existing

app = cyclopts.App(name="preroll stop", help=__doc__, version_flags=[])

POLL_S = 0.02


@app.default
def stop(
    name: str | None = None,
    /,
    *,
    state: Path | None = None,
    drain: float = 30.0,
    grace: float = 10.0,
) -> int:
    """Ends an app.

    Parameters
    ----------
    name: str
        App file or name; may be left out when only one app is served.
    state: Path
        State directory, instead of a name.
    drain: float
        Seconds that running requests may take to finish.
    grace: float
        Seconds that a replica may take to end by itself.
    """
    where = existing(state_of(name, state))
    ended = asyncio.run(stop_all(where, drain, grace))
    print(f"stopped; {ended} process trees of {where.root} ended", file=sys.stderr)
    return 0


async def stop_all(state: StateDir, drain_s: float, grace_s: float) -> int:
    """Asks control first (it knows what is running); ends the rest itself."""
    count = num_running(state)
    pid = owner(state)
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = asyncio.get_running_loop().time() + drain_s + grace_s + 10.0
        while owner(state) == pid:
            if asyncio.get_running_loop().time() > deadline:
                raise UnavailableError(
                    f"control, process {pid}, has not ended: kill -9 {pid}, then stop again"
                )
            await asyncio.sleep(POLL_S)
    return max(count, await end_all(state, drain_s, grace_s))


def num_running(state: StateDir) -> int:
    """Sockets of holders, a count for the message only."""
    return sum(1 for s in state.run.glob("*.sock") if state.holder(s.stem).is_dir())


def main(arguments: list[str]) -> int:
    return call(app, arguments)
