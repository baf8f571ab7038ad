"""An ASGI application, `module:attribute`, under uvicorn on a Unix socket."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from preroll.config.problems import Problem
from preroll.core import Wait
from preroll.engines import common
from preroll.engines.base import Engine, Launch, Listens, Mark, Probe
from preroll.engines.vllm import ADDRESS, mark
from preroll.errors import InputError

if TYPE_CHECKING:
    from preroll.config.schema import Stage


class Asgi(Engine):
    name = "asgi"
    marks: ClassVar[tuple[Mark, ...]] = (
        mark(r"Started server process", then=Wait.LOAD),
        mark(r"Waiting for application startup", then=Wait.LOAD),
        mark(r"Application startup complete", then=Wait.INIT, ended=Wait.LOAD),
    )
    reserved_flags: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("--host", "--port", "--uds", "--fd"), ADDRESS),
        "--limit-concurrency": "uvicorn would answer 503 beside the door's queue; "
        "use max_concurrency",
        "--limit-max-requests": "a replica that ends by itself is a crash",
        "--workers": "use replicas",
        "--reload": "a stage is restarted by Preroll",
        "--timeout-keep-alive": "the door's pool depends on it",
        "--app-dir": "use cwd",
    }
    default_slots = 64

    def check(self, stage: Stage) -> list[Problem]:
        return common.reserved_problems(self, stage, self.reserved_flags, {})

    def listens(self, stage: Stage) -> Listens:
        return Listens.SOCKET

    def models(self, stage: Stage) -> tuple[str, ...]:
        return stage.models

    def version(self, stage: Stage) -> str:
        return common.package_version("uvicorn")

    def launch(self, stage: Stage, directory: Path, address: str) -> Launch:
        if importlib.util.find_spec("uvicorn") is None:
            raise InputError(
                "the package 'uvicorn' is not installed; install it: pip install 'preroll[asgi]'"
            )
        env, secrets = common.environment(stage, directory)
        at = common.Address.parse(address)
        listen = ["--uds", at.socket] if at.socket else ["--host", at.host, "--port", str(at.port)]
        cwd = common.working_directory(stage, directory)
        return Launch(
            argv=(
                *(sys.executable, "-m", "uvicorn", "--app-dir", str(cwd), *listen),
                *("--timeout-keep-alive", "5", "--no-access-log", *stage.args, str(stage.app)),
            ),
            env=env,
            cwd=cwd,
            address=address,
            probe=Probe(stage.health),
            warmup=common.warmup_calls(stage, directory),
            slots=self.slots(stage),
            start_timeout_s=stage.start_timeout_s or self.default_start_timeout_s,
            pty=stage.pty,
            secrets=secrets,
        )
