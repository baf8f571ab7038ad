"""A stage of an app file as something to launch: exactly as `preroll serve` would start it."""

from __future__ import annotations

import socket
from pathlib import Path

from preroll.backends.base import Limits
from preroll.config import Stage
from preroll.engines.base import Call, Launch, Listens, get_engine
from preroll.errors import InputError, UnavailableError
from preroll.instruments.starts_launch import Command, environment
from preroll.instruments.starts_ready import Answers, Connects, Ready, http_status


def command_of(stage: Stage, directory: Path, folder: Path) -> Command:
    """`folder`: where a socket may lie. Raises InputError for a stage without a process."""
    engine = get_engine(stage.engine)
    listens = engine.listens(stage)
    if listens is Listens.NOWHERE:
        raise InputError(f"stage {stage.name!r}: engine {stage.engine!r} starts nothing")
    address = f"unix:{folder}/http" if listens is Listens.SOCKET else f"tcp:127.0.0.1:{free_port()}"
    launch = engine.launch(stage, directory, address)

    async def warm_up() -> None:
        for call in launch.warmup:
            await _warm(launch, call)

    return Command(
        argv=launch.argv,
        env=environment(launch.env),
        cwd=launch.cwd,
        ready=_ready(launch),
        timeout_s=launch.start_timeout_s,
        marks=engine.marks,
        pty=launch.pty,
        limits=Limits(memory_bytes=stage.memory_bytes),
        after_ready=warm_up if launch.warmup else None,
        stage=stage.name,
        address=launch.address,
        keepalive_ms=launch.keepalive_ms,
    )


def _ready(launch: Launch) -> Ready:
    if launch.probe.path is not None:
        return Answers(launch.address, launch.probe.path, launch.probe.ok)
    if launch.address.startswith("unix:"):
        return Answers(launch.address, "/", range(100, 600))
    return Connects(int(launch.address.rpartition(":")[2]))


async def _warm(launch: Launch, call: Call) -> None:
    headers = call.headers
    if launch.authorization:
        headers = (*headers, ("authorization", launch.authorization))
    status = await http_status(
        launch.address, call.method, call.path, call.body, headers, launch.start_timeout_s
    )
    if call.is_required and not 200 <= status < 300:
        raise UnavailableError(f"warm-up {call.method} {call.path}: status {status}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
