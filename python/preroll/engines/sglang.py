"""SGLang: `python -m sglang.launch_server`, on a port; flags and log lines as documented."""

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

GRAPH = r"Capture [\w -]*(cuda|CUDA) graph "
LIMIT = ("--max-running-requests",)


class Sglang(Engine):
    name = "sglang"
    marks: ClassVar[tuple[Mark, ...]] = (
        mark(r"server_args=ServerArgs"),
        mark(r"Init torch distributed begin"),
        # Once per rank, and again for a draft model.
        mark(r"Load weight begin", then=Wait.LOAD, repeats=True),
        mark(r"Load weight end", then=Wait.INIT, ended=Wait.LOAD, repeats=True),
        mark(r"KV [Cc]ache (is )?allocated"),
        # Several kinds of graphs, one after the other: "Capture target decode CUDA graph begin".
        mark(GRAPH + "begin", then=Wait.COMPILE, repeats=True),
        mark(GRAPH + "end", then=Wait.INIT, ended=Wait.COMPILE, repeats=True),
        mark(r"Application startup complete", then=Wait.WARM),
        mark(r"The server is fired up and ready to roll", then=Wait.WARM, ended=Wait.WARM),
    )
    reserved_flags: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("--host", "--port"), ADDRESS),
        **dict.fromkeys(("--model-path", "--model"), 'use model = "ORG/NAME"'),
        "--served-model-name": NAME,
        "--api-key": "the door authenticates; use [[serve.keys]]",
    }
    default_start_timeout_s = 3600.0
    # Its own default is derived from device memory (thousands); a stage wants a number it can hold.
    default_slots = 256

    def check(self, stage: Stage) -> list[Problem]:
        problems = common.reserved_problems(self, stage, self.reserved_flags, {})
        problems += common.limit_problems(stage, flag_value(stage.args, *LIMIT), LIMIT[0])
        if len(stage.models) > 1:
            message = f"{len(stage.models)} names; allowed: one, SGLang serves a single name"
            problems.append(Problem(("models",), message))
        return problems

    def listens(self, stage: Stage) -> Listens:
        return Listens.PORT

    def own_limit(self, stage: Stage) -> int:
        value = flag_value(stage.args, *LIMIT)
        return int(value) if value and value.isdecimal() else self.default_slots

    def version(self, stage: Stage) -> str:
        return common.package_version("sglang")

    def weights(self, stage: Stage, directory: Path) -> tuple[Path, ...]:
        return common.model_files(stage, directory)

    def launch(self, stage: Stage, directory: Path, address: str) -> Launch:
        env, secrets = common.environment(stage, directory)
        at = common.Address.parse(address)
        own = ["--host", at.host, "--port", str(at.port)]
        own += ["--served-model-name", self.models(stage)[0]]
        if not flag_value(stage.args, *LIMIT):
            own += [LIMIT[0], str(self.slots(stage))]
        install = "install SGLang as its documentation says"
        python = common.interpreter_with("sglang", env, install)
        model = common.local_model(stage, directory)
        return Launch(
            argv=(
                *(python, "-m", "sglang.launch_server", "--model-path", model),
                *(*own, *stage.args),
            ),
            env=env,
            cwd=common.working_directory(stage, directory),
            address=address,
            # /health answers before a request would be: this one generates a token.
            probe=Probe(stage.health or "/health_generate"),
            warmup=common.warmup_calls(stage, directory, [common.chat_call(self.models(stage)[0])]),
            slots=self.slots(stage),
            start_timeout_s=stage.start_timeout_s or self.default_start_timeout_s,
            pty=stage.pty,
            secrets=secrets,
        )
