"""One replica of a stage for the time of a measurement: started as `preroll serve` would start it,
with no door in front, and ended behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path

from preroll.backends.processes import facts_of
from preroll.config import Stage
from preroll.core import Start
from preroll.instruments.starts_launch import Command, HolderLauncher
from preroll.instruments.starts_stage import command_of


@dataclass(frozen=True, slots=True)
class OwnReplica:
    """Where it listens and how long it keeps connections (as in the door's tables), its start."""

    address: str
    keepalive_ms: int
    start: Start


@contextlib.contextmanager
def own_replica(stage: Stage, directory: Path, base: Path) -> Iterator[OwnReplica]:
    """Ready and warm inside the context; nothing of its tree is left behind it.

    `base` holds one folder per measuring process: what a killed one has left running is ended
    here. The event loop rests inside the context, so that an interrupt reaches the caller's code.
    Raises InputError for a stage that starts nothing, UnavailableError with the cause when the
    replica does not get ready.
    """
    with asyncio.Runner() as loop:
        loop.run(_end(_leftovers(base)))
        running = _running(stage, directory, base / str(os.getpid()))
        found = loop.run(anext(running))
        try:
            yield found
        finally:
            loop.run(running.aclose())


async def _running(stage: Stage, directory: Path, root: Path) -> AsyncGenerator[OwnReplica, None]:
    async with HolderLauncher(
        root, lambda folder: command_of(stage, directory, folder)
    ) as launcher:
        launch = launcher.launch(1)
        async with launch.running() as start:
            command = launch.command
            yield OwnReplica(command.address, command.keepalive_ms, start)


def _leftovers(base: Path) -> list[Path]:
    folders = (
        [folder for folder in base.iterdir() if folder.name.isdigit()] if base.is_dir() else []
    )
    return [folder for folder in folders if facts_of(int(folder.name)) is None]


async def _end(folders: list[Path]) -> None:
    for folder in folders:
        async with HolderLauncher(folder, _nothing):
            pass


def _nothing(folder: Path) -> Command:
    raise AssertionError("leftovers are ended, nothing is started")
