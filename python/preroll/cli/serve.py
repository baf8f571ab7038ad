"""`preroll serve`: starts an app, keeps it running, and says what it does.

What takes long to import is in `service`, and imported when the app's fork servers have begun.
Flags are read with argparse: a control that comes back must adopt within a second.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from preroll.engines.usage import USAGE
from preroll.serve import ahead
from preroll.serve.statedir import StateDir, default_state

DRAIN_S = 30.0
"""How long a stop lets running streams end, when nothing else is said."""


def main(arguments: list[str]) -> int:
    own, flags = split_flags(arguments)
    try:
        options = parser().parse_args(own)
    except SystemExit as end:
        return int(end.code or 0)
    file = Path(options.app_or_engine)
    begun = ahead.Ahead(StateDir(options.state or default_state(file.stem)))
    try:
        if not (options.target or options.detach or flags):
            # Until the service handles it itself, it must not leave behind what was begun.
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
            begun.begin(file)
        from preroll.cli.service import serve

        return serve(options, flags, begun if begun.lock else None)
    except BaseException:
        begun.undo()
        raise


def split_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours, and what follows `--` for the engine."""
    if "--" not in arguments:
        return list(arguments), []
    at = list(arguments).index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


def parser() -> argparse.ArgumentParser:
    usage = "\n".join(["preroll serve APP.toml", *USAGE.values()])
    made = argparse.ArgumentParser(
        prog="preroll serve",
        usage="\n       ".join(usage.splitlines()),
        description="Starts an app, keeps it running, and says what it does.",
        allow_abbrev=False,
    )
    made.add_argument("app_or_engine", help="an app file, or the name of an engine")
    made.add_argument("target", nargs="?", help="the engine's model, application or URL")
    made.add_argument(
        "--state", type=Path, help="state directory; default $XDG_STATE_HOME/preroll/NAME"
    )
    made.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="where the door listens, instead of the app file's; may be repeated",
    )
    made.add_argument(
        "--leave", action="store_true", help="at the end leave door and replicas running"
    )
    made.add_argument(
        "--detach", action="store_true", help="return when all is ready; go on in the background"
    )
    made.add_argument(
        "--drain",
        type=float,
        default=DRAIN_S,
        metavar="SECONDS",
        help="how long running requests may take to finish at the end (%(default)s)",
    )
    return made
