"""llama.cpp: the server of the xllamacpp package, one GGUF file, on a Unix socket."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from preroll.config.problems import Problem
from preroll.core import Wait
from preroll.engines import common
from preroll.engines.base import Engine, Launch, Listens, Mark, Probe, flag_value
from preroll.engines.llamacpp_flags import FlagError, parse_flags
from preroll.errors import InputError

if TYPE_CHECKING:
    from preroll.config.schema import Stage

WORKER = "preroll.engines.llamacpp_worker"
INSTALL = "install it: pip install 'preroll[llamacpp]'"
PARALLEL = ("-np", "--parallel")


class LlamaCpp(Engine):
    name = "llama.cpp"
    marks: ClassVar[tuple[Mark, ...]] = (
        Mark(re.compile(r"load_model: loading model"), then=Wait.LOAD),
        Mark(re.compile(r"(load_model: initializing, n_slots|warming up the model)"), Wait.WARM),
        Mark(re.compile(r"init: model loaded"), then=Wait.INIT),
    )
    reserved_flags: ClassVar[dict[str, str]] = {
        "--host": "Preroll chooses the address",
        "--port": "Preroll chooses the address",
        "-m": 'use model = "FILE.gguf"',
        "--model": 'use model = "FILE.gguf"',
        "-a": 'use models = ["NAME"]',
        "--alias": 'use models = ["NAME"]',
        "--metrics": "it is always on",
        "--api-key": "the door authenticates; use [[serve.keys]]",
        "--no-webui": "it is always off",
    }
    default_slots = 4

    def check(self, stage: Stage) -> list[Problem]:
        problems = common.reserved_problems(self, stage, self.reserved_flags, {})
        if problems:
            return problems
        try:
            parse_flags(stage.args)
        except FlagError as error:
            return [Problem(("args", error.index), str(error))]
        return common.limit_problems(stage, flag_value(stage.args, *PARALLEL), PARALLEL[1])

    def listens(self, stage: Stage) -> Listens:
        return Listens.SOCKET

    def own_limit(self, stage: Stage) -> int:
        return int(flag_value(stage.args, *PARALLEL) or self.default_slots)

    def models(self, stage: Stage) -> tuple[str, ...]:
        """The aliases of the file, else the name of the GGUF without its ending."""
        return stage.models or (Path(stage.model or "").stem.removeprefix("pkg:"),)

    def version(self, stage: Stage) -> str:
        return common.package_version("xllamacpp")

    def weights(self, stage: Stage, directory: Path) -> tuple[Path, ...]:
        return (find_gguf(stage.model or "", directory),)

    def launch(self, stage: Stage, directory: Path, address: str) -> Launch:
        if importlib.util.find_spec("xllamacpp") is None:
            raise InputError(f"the package 'xllamacpp' is not installed; {INSTALL}")
        env, secrets = common.environment(stage, directory)
        flags = list(stage.args)
        if not flag_value(flags, *PARALLEL):
            flags += [PARALLEL[1], str(self.slots(stage))]
        warmup = common.warmup_calls(stage, directory, [common.chat_call(self.models(stage)[0])])
        # The engine's own empty run is work done twice where a real request warms up after it.
        if warmup and not {"--warmup", "--no-warmup"} & set(flags):
            flags.append("--no-warmup")
        names = [word for name in self.models(stage) for word in ("--alias", name)]
        model = str(find_gguf(stage.model or "", directory))
        return Launch(
            argv=(
                *(sys.executable, "-P", "-m", WORKER, "--model", model),
                *("--listen", address, *names, "--", *flags),
            ),
            # Threads that spin at a barrier burn what the others need as soon as the processors
            # are shared with anything else (benchmarks/voice/spinning.py); a stage may set the
            # variable itself.
            env={"GOMP_SPINCOUNT": "1000", **env},
            cwd=common.working_directory(stage, directory),
            address=address,
            probe=Probe(stage.health or "/health"),
            warmup=warmup,
            slots=self.slots(stage),
            start_timeout_s=stage.start_timeout_s or self.default_start_timeout_s,
            # It ends the connection behind a streamed answer though it announced to keep it.
            keepalive_ms=0,
            pty=stage.pty,
            secrets=secrets,
        )


def find_gguf(model: str, directory: Path) -> Path:
    """The GGUF file that `model` names: a path, or `pkg:NAME[/FILE]`, the one that an installed
    Python package carries (found without importing it). Raises InputError."""
    if not model.startswith("pkg:"):
        path = (directory / model).absolute()
        if not path.is_file():
            raise InputError(f"model {model!r}: there is no file {path}; give a GGUF or pkg:NAME")
        return path
    name, _, file = model.removeprefix("pkg:").partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"model {model!r}: the package {name!r} is not installed; pip install it")
    folder = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(folder.glob(file or "*.gguf"))
    if len(found) != 1:
        names = ", ".join(path.name for path in folder.glob("*.gguf")) or "none"
        raise InputError(f"model {model!r}: {len(found)} files match; GGUF files there: {names}")
    return found[0]
