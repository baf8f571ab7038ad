"""A `preroll.Stage` of the user, `module:Class`, in the worker's process (docs/stage.md).

The worker runs on the Python that the stage names, with nothing of ours but the package itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from preroll.config.problems import Problem
from preroll.core import Wait
from preroll.engines import common, python_source
from preroll.engines.base import Engine, Launch, Listens, Mark, Probe
from preroll.engines.python_environment import Environment

if TYPE_CHECKING:
    from preroll.config.schema import Stage

WORKER = "preroll.worker"
VARIABLE = "PREROLL_WORKER"
VERSION = 1
INTERNAL_SOCKET = "internal.sock"
PHASES = {"load": Wait.LOAD, "compile": Wait.COMPILE, "warm": Wait.WARM}


class Python(Engine):
    name = "python"
    marks: ClassVar[tuple[Mark, ...]] = tuple(
        Mark(re.compile(rf"preroll\.worker: phase {phase}$"), then=wait)
        for phase, wait in PHASES.items()
    )
    reserved_env: ClassVar[dict[str, str]] = {VARIABLE: "use options"}
    default_slots = 16

    def check(self, stage: Stage) -> list[Problem]:
        problems = common.reserved_problems(self, stage, {}, self.reserved_env)
        if stage.args:
            problems.append(Problem(("args",), "a class takes no flags; use options", True))
        return problems

    def check_files(self, stage: Stage, directory: Path) -> list[Problem]:
        """A batch that the limit keeps from ever filling, read from the source."""
        cwd = common.working_directory(stage, directory)
        batch = python_source.largest_batch(cwd, stage.stage_class or "")
        slots = self.slots(stage)
        if batch is None or slots >= batch.max_size:
            return []
        said = f"{slots} is" if stage.max_concurrency else f"the default, {slots}, is"
        message = (
            f"{said} below max_size={batch.max_size} of {batch.where}: the batch could never fill;"
            f" allowed: at least {batch.max_size}"
        )
        return [Problem(("max_concurrency",), message, stage.max_concurrency is None)]

    def listens(self, stage: Stage) -> Listens:
        return Listens.SOCKET

    def version(self, stage: Stage) -> str:
        return common.package_version("uvicorn") if stage.python is None else "unknown"

    def launch(self, stage: Stage, directory: Path, address: str) -> Launch:
        env, secrets = common.environment(stage, directory)
        python = Environment.of(stage.python, directory)
        python.check()
        at = common.Address.parse(address)
        listen = ("--uds", at.socket) if at.socket else ()
        settings = json.dumps(self._settings(stage, at), separators=(",", ":"))
        env |= python.variables(env)
        cwd = common.working_directory(stage, directory)
        fork = python.fork_server(stage.imports, env, cwd)
        return Launch(
            argv=(str(python.program), "-m", WORKER, str(stage.stage_class), *listen),
            env={**env, VARIABLE: settings},
            cwd=cwd,
            address=address,
            probe=Probe(stage.health or "/_preroll/health"),
            warmup=common.warmup_calls(stage, directory),
            slots=self.slots(stage),
            start_timeout_s=stage.start_timeout_s or self.default_start_timeout_s,
            pty=stage.pty,
            secrets=secrets,
            fork=fork if stage.imports else None,
        )

    def _settings(self, stage: Stage, at: common.Address) -> dict[str, Any]:
        """What the worker is told (docs/protocol.md). The door's socket is beside the replica's."""
        socket = Path(at.socket) if at.socket else None
        return {
            "version": VERSION,
            "stage": stage.name,
            "replica": socket.stem if socket else None,
            "max_concurrency": self.slots(stage),
            "idle_timeout_s": stage.stream_idle_timeout_s,
            "frame_s": stage.frame_s,
            "options": stage.options,
            "calls": list(stage.calls),
            "internal": str(socket.with_name(INTERNAL_SOCKET)) if socket else None,
        }
