"""One profiled run: the command under a holder, a recorder beside it, a hook in its Pythons."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from preroll.instruments.startup.base import Profile


@dataclass(frozen=True, slots=True)
class Options:
    """What to run and how to look at it.

    `ready`: a regular expression, URL or port; None is the port of `{port}` in the command, else
    its end with status 0. `env` is added to this process's environment. `recorder`: "auto",
    "tracefs", "proc", or "off" (stamps only). `hook`: record imports in Python processes.
    `on_ready` is awaited while the command still runs, after it was stamped ready.
    """

    command: tuple[str, ...]
    ready: str | None = None
    timeout_s: float = 3600.0
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    hook: bool = True
    recorder: str = "auto"
    engine: str | None = None
    pty: bool = False
    on_ready: Callable[[], Awaitable[None]] | None = None


async def record(options: Options) -> Profile:
    """Runs the command once and ends its whole tree. Raises InputError, UnavailableError."""
    raise NotImplementedError


def run(command: Sequence[str], ready: str | None = None, **more: object) -> Profile:
    """`record` for callers without an event loop; `more`: the fields of `Options`."""
    options = Options(tuple(command), ready, **more)  # type: ignore[arg-type]
    return asyncio.run(record(options))
