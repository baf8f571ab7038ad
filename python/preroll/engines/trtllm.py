"""TensorRT-LLM: `trtllm-serve MODEL`, on a port; flags and log lines as documented."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from preroll.config.problems import Problem
from preroll.core import Wait
from preroll.engines import common
from preroll.engines.base import Engine, Launch, Listens, Mark, Probe, flag_value
from preroll.engines.vllm import ADDRESS, NAME, mark

if TYPE_CHECKING:
    from preroll.config.schema import Stage

LIMIT = ("--max_batch_size",)


class Trtllm(Engine):
    name = "trtllm"
    marks: ClassVar[tuple[Mark, ...]] = (
        mark(r"TensorRT-LLM version"),
        mark(r"(Prefetching .*checkpoint|Use [\d.]+ GB for model weights)", then=Wait.LOAD),
        mark(r"Loading .*(checkpoint|weights)", then=Wait.LOAD),
        mark(r"Model init total", then=Wait.INIT, ended=Wait.LOAD),
        # Twice: to learn what memory is left for the KV cache, and with the cache of that size.
        mark(r"Autotuning process starts", then=Wait.COMPILE, repeats=True),
        mark(r"Autotuning process ends", Wait.INIT, Wait.COMPILE, repeats=True),
        mark(r"Creating CUDA graph instances", then=Wait.COMPILE, repeats=True),
        mark(r"Memory used after loading model weights", then=Wait.INIT),
        mark(r"Setting PyTorch memory fraction", then=Wait.INIT),
        mark(r"Started server process", then=Wait.INIT),
        mark(r"Application startup complete", then=Wait.INIT),
    )
    reserved_flags: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("--host", "--port"), ADDRESS),
        "--served_model_name": NAME,
        "--grpc": "the door speaks HTTP to the engine",
    }
    default_start_timeout_s = 3600.0
    # Documented defaults differ between releases (8, 256, 2048): Preroll passes the flag, so that
    # the engine's limit and the door's are the same number whatever the release.
    default_slots = 64

    def check(self, stage: Stage) -> list[Problem]:
        problems = common.reserved_problems(self, stage, self.reserved_flags, {})
        problems += common.limit_problems(stage, flag_value(stage.args, *LIMIT), LIMIT[0])
        if len(stage.models) > 1:
            message = f"{len(stage.models)} names; allowed: one, trtllm-serve has a single name"
            problems.append(Problem(("models",), message))
        return problems

    def listens(self, stage: Stage) -> Listens:
        return Listens.PORT

    def own_limit(self, stage: Stage) -> int:
        value = flag_value(stage.args, *LIMIT)
        return int(value) if value and value.isdecimal() else self.default_slots

    def version(self, stage: Stage) -> str:
        return common.package_version("tensorrt_llm", "tensorrt-llm")

    def weights(self, stage: Stage, directory: Path) -> tuple[Path, ...]:
        return common.model_files(stage, directory)

    def launch(self, stage: Stage, directory: Path, address: str) -> Launch:
        env, secrets = common.environment(stage, directory)
        at = common.Address.parse(address)
        own = ["--host", at.host, "--port", str(at.port)]
        if stage.models:
            own += ["--served_model_name", stage.models[0]]
        if not flag_value(stage.args, *LIMIT):
            own += [LIMIT[0], str(self.slots(stage))]
        install = "install TensorRT-LLM as its documentation says"
        program = common.program("trtllm-serve", env, install)
        return Launch(
            argv=(program, common.local_model(stage, directory), *own, *stage.args),
            env=env,
            cwd=common.working_directory(stage, directory),
            address=address,
            probe=Probe(stage.health or "/health"),
            warmup=common.warmup_calls(stage, directory, [common.chat_call(self.models(stage)[0])]),
            slots=self.slots(stage),
            start_timeout_s=stage.start_timeout_s or self.default_start_timeout_s,
            pty=stage.pty,
            secrets=secrets,
        )
