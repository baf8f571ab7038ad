"""One profiled run: the command under a holder, a recorder beside it, a hook in its Pythons."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from preroll.backends.base import Orphans, ProcessSpec, Stdio
from preroll.backends.local import LocalBackend
from preroll.engines.guess import engine_marks
from preroll.errors import InputError
from preroll.instruments.starts_ready import Answers, Connects, Ends, Ready, parse_ready
from preroll.instruments.starts_stage import free_port
from preroll.instruments.startup import hook
from preroll.instruments.startup.base import Profile
from preroll.instruments.startup.recorder import Recorder
from preroll.instruments.startup.watch import Watch

RECORDERS = ("auto", "tracefs", "proc", "off")
NAME = "command"


@dataclass(frozen=True, slots=True)
class Options:
    """What to run and how to look at it.

    `ready`: a regular expression, URL or port; None is the port of `{port}` in the command, else
    its end with status 0. `env` is added to this process's environment. `recorder`: "auto",
    "tracefs", "proc", or "off" (stamps only). `hook`: record imports in Python processes.
    `engine`: whose log lines are known; None guesses it from the command. `on_ready` is awaited
    while the command still runs, after it was stamped ready.
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

    def __post_init__(self) -> None:
        if not self.command:
            raise InputError("no command: give it after --, as in preroll profile -- PROGRAM …")
        if self.recorder not in RECORDERS:
            raise InputError(f"recorder {self.recorder!r}: allowed: {', '.join(RECORDERS)}")
        engine_marks(self.command, self.engine)  # says so when there is no such engine


async def record(options: Options) -> Profile:
    """Runs the command once and ends its whole tree. Raises InputError, UnavailableError."""
    from preroll.instruments.startup.assemble import assemble

    port = free_port() if "{port}" in " ".join((*options.command, options.ready or "")) else None
    argv = tuple(word.replace("{port}", str(port)) for word in options.command)
    ready = parse_ready(options.ready, port)
    if isinstance(ready, (Connects, Answers)) and await ready.is_so_now():
        raise InputError(f"{ready}: something answers there before the start; end it first")
    root = Path(tempfile.mkdtemp(prefix="preroll-profile-"))
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        recorder = None
        if options.recorder != "off":
            recorder = await Recorder.start(options.recorder)
            stack.push_async_callback(recorder.close)
        backend = LocalBackend(root)
        stack.callback(backend.close)
        spec = specification(options, argv, root, ready)
        seen = await Watch(backend, spec, ready, recorder).run(options.timeout_s, options.on_ready)
        return assemble(options, argv, seen, hook.read(root / hook.FOLDER))


def specification(options: Options, argv: tuple[str, ...], root: Path, ready: Ready) -> ProcessSpec:
    env = {**os.environ, **options.env}
    if options.hook:
        env = hook.install(root / hook.FOLDER, env)
    return ProcessSpec(
        id=NAME,
        argv=argv,
        env=env,
        cwd=options.cwd or Path.cwd(),
        stdio=Stdio.PTY if options.pty else Stdio.PIPES,
        tail_lines=100_000,
        # A command that puts itself into the background is followed there, unless its own end
        # is what is waited for.
        orphans=Orphans.KILL if isinstance(ready, Ends) else Orphans.WAIT,
        exact_stamps=True,
    )


def run(command: Sequence[str], ready: str | None = None, **more: object) -> Profile:
    """`record` for callers without an event loop; `more`: the fields of `Options`."""
    options = Options(tuple(command), ready, **more)  # type: ignore[arg-type]
    return asyncio.run(record(options))
