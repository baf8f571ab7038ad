"""Any program that listens: `{socket}` or `{port}` in its command, or a fixed `port`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from preroll.config.problems import Problem
from preroll.engines import common
from preroll.engines.base import Engine, Launch, Listens, Probe
from preroll.errors import InputError

if TYPE_CHECKING:
    from preroll.config.schema import Stage


class Command(Engine):
    name = "command"
    # Nothing is known of the server: a pooled connection is given up before any usual server's
    # keep-alive would close it.
    keepalive_ms = 1000

    def check(self, stage: Stage) -> list[Problem]:
        words = [*stage.command, *stage.args, *(v for v in stage.env.values() if type(v) is str)]
        socket = any("{socket}" in word for word in words)
        port = any("{port}" in word for word in words)
        if stage.port is not None and (socket or port):
            return [Problem(("port",), f"{stage.port}: the command has {{port}} or {{socket}} too")]
        if socket and port:
            return [Problem(("command",), "has {port} and {socket}; allowed: one of them")]
        if not socket and not port and stage.port is None:
            message = "says nowhere where to listen; put {port} or {socket} in it, or give port"
            return [Problem(("command",), f"{' '.join(stage.command)!r}: {message}")]
        return []

    def listens(self, stage: Stage) -> Listens:
        words = (*stage.command, *stage.args, *map(str, stage.env.values()))
        return Listens.SOCKET if any("{socket}" in w for w in words) else Listens.PORT

    def models(self, stage: Stage) -> tuple[str, ...]:
        return stage.models or ((stage.model,) if stage.model else ())

    def version(self, stage: Stage) -> str:
        return "unknown"

    def weights(self, stage: Stage, directory: Path) -> tuple[Path, ...]:
        return common.model_files(stage, directory)

    def launch(self, stage: Stage, directory: Path, address: str) -> Launch:
        at = common.Address.parse(address)
        if stage.port is not None:
            address = f"tcp:127.0.0.1:{stage.port}"
        env, secrets = common.environment(stage, directory)
        cwd = common.working_directory(stage, directory)
        argv = tuple(filled(word, at) for word in (*stage.command, *stage.args))
        return Launch(
            argv=(executable(argv[0], cwd), *argv[1:]),
            env={name: filled(value, at) for name, value in env.items()},
            cwd=cwd,
            address=address,
            probe=Probe(stage.health),
            warmup=common.warmup_calls(stage, directory),
            slots=self.slots(stage),
            start_timeout_s=stage.start_timeout_s or self.default_start_timeout_s,
            pty=stage.pty,
            keepalive_ms=self.keepalive_ms,
            secrets=secrets,
        )


def filled(text: str, at: common.Address) -> str:
    return text.replace("{socket}", at.socket or "").replace("{port}", str(at.port))


def executable(name: str, cwd: Path) -> str:
    """The program's path; InputError when there is none (better here than in a crash loop)."""
    if "/" in name:
        path = cwd / name
        if not path.is_file():
            raise InputError(f"command {name!r}: there is no file {path}")
        return str(path)
    found = shutil.which(name)
    if found is None:
        raise InputError(f"command {name!r}: no such program on PATH")
    return found
