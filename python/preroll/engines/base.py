"""The contract of an engine: how a stage becomes a process, and how its process is understood.

An engine is stateless: it answers questions about a `Stage` and starts nothing. What it knows
of a third-party server comes from that server's documented flags, endpoints and log lines.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from preroll.core import Wait

if TYPE_CHECKING:
    from preroll.config.problems import Problem
    from preroll.config.schema import Stage


class Listens(StrEnum):
    """Where a replica of a stage can listen; NOWHERE: the server is already running (`url`)."""

    SOCKET = "socket"
    PORT = "port"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class Probe:
    """Ready when `GET path` answers a status within `ok`; with `path` None, when a connection
    is taken."""

    path: str | None
    ok: range = range(200, 300)
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request of the explicit warm-up.

    One of the app file must be answered with 2xx; an engine's default is a try (`is_required`
    False): a model of another kind may not have that endpoint.
    """

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork server's process: `python -m module`, in the directory and with the environment of
    the replicas that are to be forked from it, having imported `imports`."""

    python: str
    module: str
    imports: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path = Path("/")


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start and how to talk to it.

    `env` is added to the environment of the caller. `address` is "unix:/path" or
    "tcp:HOST:PORT", as in the door's tables, and so are `host`, `keepalive_ms` and
    `authorization`. For an engine that `listens` NOWHERE, `argv` is empty. The caller removes a
    stale socket at `address` first: some servers refuse to bind over one. `fork`: the replica may
    be forked from such a process instead of being spawned.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    address: str
    probe: Probe
    warmup: tuple[Call, ...]
    slots: int
    start_timeout_s: float
    pty: bool = False
    keepalive_ms: int = 4000
    host: str = "127.0.0.1"
    authorization: str | None = None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    fork: Fork | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A log line that bounds a wait.

    From a line that matches `pattern` on, time is billed to `then`. With `ended`, the line
    reports something finished: the seconds that it names ("took 26.93 seconds"), else the time
    back to the previous mark, are billed to `ended`. Only the first match of a mark counts
    unless it `repeats`. `then` None keeps the wait that was running.
    """

    pattern: re.Pattern[str]
    then: Wait | None = None
    ended: Wait | None = None
    repeats: bool = False


class Engine(ABC):
    """One kind of server. See the files beside this one; `get_engine` finds them by name."""

    name: ClassVar[str]
    marks: ClassVar[tuple[Mark, ...]] = ()
    reserved_flags: ClassVar[Mapping[str, str]] = {}
    reserved_env: ClassVar[Mapping[str, str]] = {}
    default_start_timeout_s: ClassVar[float] = 600.0
    default_slots: ClassVar[int] = 1

    @abstractmethod
    def check(self, stage: Stage) -> list[Problem]:
        """What is wrong with a stage of this engine, as far as no process is needed to see it.

        Paths in the problems are relative to the stage's table.
        """

    def check_files(self, stage: Stage, directory: Path) -> list[Problem]:
        """As `check`, for what only the stage's own files below `directory` tell."""
        return []

    @abstractmethod
    def launch(self, stage: Stage, directory: Path, address: str) -> Launch:
        """The command of one replica that listens at `address` (of the kind `listens` says).

        `directory`: the app's, for relative paths. Raises `InputError` when a secret, a file or
        the engine's program is missing, with what to install.
        """

    @abstractmethod
    def listens(self, stage: Stage) -> Listens: ...

    @abstractmethod
    def version(self, stage: Stage) -> str:
        """The engine's version, found without importing or starting it; "unknown" if it cannot."""

    def slots(self, stage: Stage) -> int:
        """Requests in flight per replica: what the file says, else the engine's own limit."""
        return stage.max_concurrency or self.own_limit(stage)

    def own_limit(self, stage: Stage) -> int:
        """The engine's own limit of requests in flight, from its flags or its default."""
        return self.default_slots

    def models(self, stage: Stage) -> tuple[str, ...]:
        """What `model` of a request may say: the aliases of the file, else the engine's name."""
        return stage.models or ((stage.model,) if stage.model else ())

    def model_sent(self, stage: Stage) -> str | None:
        """The name by which the engine knows its model, when requests must carry that one."""
        return None

    def weights(self, stage: Stage, directory: Path) -> tuple[Path, ...]:
        """The files whose content is the model; empty where the engine fetches them itself."""
        return ()


ENGINES: dict[str, str] = {
    "llama.cpp": "preroll.engines.llamacpp:LlamaCpp",
    "vllm": "preroll.engines.vllm:Vllm",
    "sglang": "preroll.engines.sglang:Sglang",
    "trtllm": "preroll.engines.trtllm:Trtllm",
    "python": "preroll.engines.python:Python",
    "asgi": "preroll.engines.asgi:Asgi",
    "command": "preroll.engines.command:Command",
    "url": "preroll.engines.url:Url",
}


def get_engine(name: str) -> Engine:
    """The engine of that name (a key of `ENGINES`)."""
    import importlib

    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)()
    return engine


def flag_value(args: Sequence[str], *names: str) -> str | None:
    """The value of a flag in `--flag value` or `--flag=value` form; the last one wins."""
    found = None
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name in names:
            found = value if equals else args[i + 1] if i + 1 < len(args) else None
    return found
