"""The types of an app file. Keys in the file are the aliases; fields carry their unit.

All types are frozen. They are built by `preroll.config.parse_app` and `preroll.config.quick`
only: a value of these types has passed every check that needs no machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from preroll.config import values
from preroll.config.units import parse_duration, parse_size
from preroll.core import Resources, ScaleParameters, Slo

EngineName = Literal["llama.cpp", "vllm", "sglang", "trtllm", "python", "asgi", "command", "url"]

Duration = Annotated[float, BeforeValidator(parse_duration)]
Interval = Annotated[float, BeforeValidator(parse_duration), Field(gt=0)]
Size = Annotated[int, BeforeValidator(parse_size)]
Secret = Annotated[str, AfterValidator(values.secret_reference)]
Text = Annotated[str, StringConstraints(min_length=1)]
HttpPath = Annotated[str, AfterValidator(values.http_path)]
Words = Annotated[tuple[str, ...], BeforeValidator(values.words)]
Strings = Annotated[tuple[Text, ...], BeforeValidator(values.strings)]


class Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_by_alias=True
    )


class Queue(Table):
    """Bounds of a stage's queue; `start_hold_s`: of a wait for a start, without a deadline."""

    max_wait_s: Duration = Field(2.0, alias="max_wait")
    max_depth: Annotated[int, Field(ge=0, le=1_000_000)] = 1024
    start_hold_s: Duration = Field(60.0, alias="start_hold")


class SloTable(Table):
    ttft_p95_s: Duration | None = Field(None, alias="ttft_p95")
    itl_p95_s: Duration | None = Field(None, alias="itl_p95")
    pace_s: Interval | None = Field(None, alias="pace")


class Scale(Table):
    """Replicas between `min` and `max`; `idle_timeout_s` None is `auto`: the cost of a start."""

    min_replicas: Annotated[int, Field(ge=0, le=10_000)] = Field(1, alias="min")
    max_replicas: Annotated[int, Field(ge=1, le=10_000)] = Field(1, alias="max")
    idle_timeout_s: Annotated[float | None, BeforeValidator(values.idle_timeout)] = Field(
        None, alias="idle_timeout"
    )
    prewarm: Annotated[tuple[str, ...], BeforeValidator(values.prewarm)] = ()
    target_concurrency: Annotated[float, Field(gt=0)] | None = None


class Warmup(Table):
    """One request sent before a replica is ready. `body`: a file's path or an inline table."""

    path: HttpPath
    body: str | dict[str, Any] | None = None
    method: Literal["GET", "POST", "PUT"] | None = None


class SecretValue(Table):
    """An environment value kept out of the file: `{ secret = "env:NAME" }`."""

    secret: Secret


class Stage(Table):
    """One stage: an engine and the bounds of its replicas. `name` is the key of its table."""

    name: str = Field("", alias="(name)")
    engine: EngineName
    model: Text | None = None
    models: Strings = ()
    args: Annotated[tuple[str, ...], BeforeValidator(values.strings)] = ()
    env: dict[Text, str | SecretValue] = Field(default_factory=dict)
    command: Words = ()
    app: Annotated[str, AfterValidator(values.asgi_target)] | None = None
    stage_class: Annotated[str, AfterValidator(values.class_target)] | None = Field(
        None, alias="class"
    )
    options: Annotated[dict[Text, Any], AfterValidator(values.json_table)] = Field(
        default_factory=dict
    )
    imports: Annotated[Strings, AfterValidator(values.module_names)] = ()
    python: Text | None = None
    calls: Strings = ()
    url: Annotated[str, AfterValidator(values.server_url)] | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    api_key: Secret | None = None
    cwd: Text | None = None
    pty: bool = False
    gpus: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_memory_bytes: Size | None = Field(None, alias="gpu_memory")
    cpus: Annotated[float, Field(gt=0, le=4096)] | None = None
    memory_bytes: Size | None = Field(None, alias="memory")
    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    is_limit_measured: bool = Field(False, alias="(measured)")
    max_sessions: Annotated[int, Field(ge=0, le=1_000_000)] = 256
    kv_tokens: Annotated[int, Field(ge=1)] | None = None
    queue: Queue = Field(default_factory=lambda: Queue.model_validate({}))
    frame_s: Interval | None = Field(None, alias="frame")
    slo_table: SloTable = Field(default_factory=lambda: SloTable.model_validate({}), alias="slo")
    replicas: Annotated[int, Field(ge=0, le=10_000)] | None = None
    scale: Scale | None = None
    warmup: Annotated[tuple[Warmup, ...], BeforeValidator(values.tuples)] | None = None
    health: HttpPath | None = None
    health_timeout_s: Duration = Field(30.0, alias="health_timeout")
    start_timeout_s: Duration | None = Field(None, alias="start_timeout")
    stop_grace_s: Duration = Field(10.0, alias="stop_grace")
    stream_idle_timeout_s: Duration = Field(300.0, alias="stream_idle_timeout")

    @model_validator(mode="before")
    @classmethod
    def _measured(cls, value: object) -> object:
        return values.measured_limit(value)

    @property
    def resources(self) -> Resources:
        """What one replica may use."""
        return Resources(
            cpus=self.cpus,
            memory_bytes=self.memory_bytes,
            gpus=self.gpus,
            gpu_memory_bytes=self.gpu_memory_bytes,
        )

    @property
    def slo(self) -> Slo:
        table = self.slo_table
        return Slo(ttft_p95_s=table.ttft_p95_s, itl_p95_s=table.itl_p95_s, pace_s=table.pace_s)

    @property
    def scaling(self) -> ScaleParameters:
        """The `scale` table, or a fixed number of replicas (one where nothing is said)."""
        if self.scale is None:
            count = 1 if self.replicas is None else self.replicas
            return ScaleParameters(min_replicas=count, max_replicas=count)
        return ScaleParameters(
            min_replicas=self.scale.min_replicas,
            max_replicas=self.scale.max_replicas,
            target_concurrency=self.scale.target_concurrency,
            idle_timeout_s=self.scale.idle_timeout_s,
            prewarm=self.scale.prewarm,
        )


class Route(Table):
    """A path (exact, or a prefix that ends in `/*`) served by a stage."""

    path: HttpPath
    stage: Text
    timeout_s: Duration | None = Field(None, alias="timeout")
    frame_s: Interval | None = Field(None, alias="frame")
    strip_prefix: bool = False
    priority: Annotated[int, Field(ge=-100, le=100)] = 0


class Key(Table):
    """An API key: its SHA-256 in hex, or a reference to where the key itself is kept."""

    id: Text
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    key: Secret | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Key:
        if (self.sha256 is None) == (self.key is None):
            raise ValueError("give exactly one of sha256 and key")
        return self


class Tls(Table):
    cert: Text
    key: Text


class AccessLog(Table):
    file: Text
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0


class Limits(Table):
    """Bounds of the door against slow, large or many clients."""

    head_bytes: Size = Field(64 << 10, alias="head")
    head_timeout_s: Duration = Field(15.0, alias="head_timeout")
    body_bytes: Size = Field(64 << 20, alias="body")
    body_budget_bytes: Size = Field(256 << 20, alias="body_budget")
    body_timeout_s: Duration = Field(60.0, alias="body_timeout")
    connections: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    drain_accept_s: Duration = Field(2.0, alias="drain_accept")


class Serve(Table):
    """The door: where it listens, who may call, and its bounds. Addresses are HOST:PORT."""

    listen: Annotated[tuple[str, ...], BeforeValidator(values.listen)] = ("127.0.0.1:8080",)
    admin: Annotated[str, AfterValidator(values.host_port)] | None = None
    admin_token: Secret | None = None
    keys: Annotated[tuple[Key, ...], BeforeValidator(values.tuples)] = ()
    tls: Tls | None = None
    access_log: AccessLog | None = None
    limits: Limits = Field(default_factory=lambda: Limits.model_validate({}))


class VoiceTable(Table):
    """Speech endpoints over three stages of the app; `config.voice` makes the stage of it."""

    stt: Text = "stt"
    llm: Text = "llm"
    tts: Text = "tts"
    model: Text | None = None
    instructions: Text | None = None
    max_input_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    max_audio_s: Duration = Field(4 * 3600.0, alias="max_audio")
    max_answer_tokens: Annotated[int, Field(ge=1, le=100_000)] = 160
    max_history_chars: Annotated[int, Field(ge=200, le=10_000_000)] = 6000
    lead_s: Duration = Field(1.0, alias="lead")
    preemptive_generation: bool = True
    page: bool = True
    extra: Annotated[dict[Text, Any], AfterValidator(values.json_table)] = Field(
        default_factory=dict
    )
    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    max_sessions: Annotated[int, Field(ge=0, le=1_000_000)] = 256
    imports: Annotated[Strings, AfterValidator(values.module_names)] = ()


class App(Table):
    """A whole app file. Relative paths in it are relative to `directory`."""

    serve: Serve = Field(default_factory=lambda: Serve.model_validate({}))
    stages: Annotated[dict[str, Stage], BeforeValidator(values.named_tables)] = Field(
        default_factory=dict, alias="stage"
    )
    routes: Annotated[tuple[Route, ...], BeforeValidator(values.tuples)] = Field((), alias="route")
    voice: VoiceTable | None = None
    path: Path | None = Field(None, alias="(path)")

    @property
    def directory(self) -> Path:
        """The folder of the app file; the working directory for an app without a file."""
        return self.path.parent if self.path else Path.cwd()
