"""Parts that several engines share: environment, warm-up calls, addresses, versions."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from preroll.config.problems import Problem
from preroll.config.secrets import resolve_secret
from preroll.engines.base import Call, Engine
from preroll.engines.python_environment import PRINTS_AT_ONCE
from preroll.errors import InputError

if TYPE_CHECKING:
    from preroll.config.schema import Stage, Warmup

JSON_HEADER = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Address:
    """An address of the wire, taken apart: a Unix socket's path, or host and port."""

    socket: str | None
    host: str = "127.0.0.1"
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Address:
        kind, _, rest = text.partition(":")
        if kind == "unix":
            return cls(socket=rest)
        host, _, port = rest.rpartition(":")
        return cls(socket=None, host=host.strip("[]"), port=int(port))


def environment(stage: Stage, directory: Path) -> tuple[dict[str, str], frozenset[str]]:
    """The stage's `env` with its secrets resolved, and those secrets (to be kept out of logs)."""
    env = dict(PRINTS_AT_ONCE)
    secrets: set[str] = set()
    for name, value in stage.env.items():
        if isinstance(value, str):
            env[name] = value
        else:
            env[name] = resolve_secret(value.secret, directory)
            secrets.add(env[name])
    return env, frozenset(secrets)


def working_directory(stage: Stage, directory: Path) -> Path:
    return directory / stage.cwd if stage.cwd else directory


def warmup_calls(stage: Stage, directory: Path, default: Iterable[Call] = ()) -> tuple[Call, ...]:
    """The warm-up of the file, or the engine's default where the file says nothing."""
    if stage.warmup is None:
        return tuple(default)
    return tuple(_call(warmup, directory) for warmup in stage.warmup)


def _call(warmup: Warmup, directory: Path) -> Call:
    if warmup.body is None:
        return Call(warmup.method or "GET", warmup.path)
    if isinstance(warmup.body, str):
        path = directory / warmup.body
        try:
            body = path.read_bytes()
        except OSError as error:
            raise InputError(f"warm-up body {path}: {error.strerror}") from None
    else:
        body = json.dumps(warmup.body).encode()
    return Call(warmup.method or "POST", warmup.path, body, JSON_HEADER)


def chat_call(model: str, max_tokens: int = 4) -> Call:
    """A short chat: enough to touch tokenizer, prefill and decode once."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    text = json.dumps(body).encode()
    return Call("POST", "/v1/chat/completions", text, JSON_HEADER, is_required=False)


def reserved_problems(
    engine: Engine, stage: Stage, flags: Mapping[str, str], env: Mapping[str, str]
) -> list[Problem]:
    """An argument or variable that Preroll sets itself is an error that names it and the key."""
    problems = []
    for i, arg in enumerate(stage.args):
        flag = arg.partition("=")[0]
        if flag in flags:
            message = f"{flag!r} is set by Preroll for engine {engine.name!r}; {flags[flag]}"
            problems.append(Problem(("args", i), message))
    for name in stage.env:
        if name in env:
            message = f"{name!r} is set by Preroll for engine {engine.name!r}; {env[name]}"
            problems.append(Problem(("env", name), message, True))
    return problems


def limit_problems(stage: Stage, own: str | None, flag: str) -> list[Problem]:
    """A limit above the engine's own would only fill a second, hidden queue."""
    if own is None or not own.isdecimal() or not stage.max_concurrency:
        return []
    if stage.max_concurrency <= int(own):
        return []
    message = f"{stage.max_concurrency} is above the engine's own limit, {flag} {own}"
    return [Problem(("max_concurrency",), f"{message}; allowed: at most {own}")]


def local_model(stage: Stage, directory: Path) -> str:
    """The model as the engine is to be told: an existing folder by its full path, else a name."""
    path = directory / (stage.model or "")
    return str(path.absolute()) if path.exists() else str(stage.model)


def model_files(stage: Stage, directory: Path) -> tuple[Path, ...]:
    """The files of a model that is on this disk; empty for one that the engine fetches."""
    path = directory / (stage.model or "")
    if not stage.model or not path.exists():
        return ()
    if path.is_file():
        return (path,)
    return tuple(sorted(p for p in path.rglob("*") if p.is_file()))


def interpreter_with(package: str, env: Mapping[str, str], install: str) -> str:
    """The Python that has `package`: the first on the stage's own PATH where it has one (what is
    installed there is not looked into), else this one. Raises InputError."""
    if "PATH" in env:
        return program("python3", env, "install Python")
    if importlib.util.find_spec(package) is None:
        raise InputError(f"the package {package!r} is not installed; {install}")
    return sys.executable


def package_version(*names: str) -> str:
    """The version of the first of these packages that is installed beside Preroll."""
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def program(name: str, env: Mapping[str, str], install: str) -> str:
    """The path of a program: on the stage's own PATH where it has one, else beside this
    interpreter, else on PATH. Raises InputError that says how to install it."""
    beside = Path(sys.executable).parent / name
    if "PATH" in env:
        found = shutil.which(name, path=env["PATH"])
    else:
        found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise InputError(
            f"the program {name!r} is not installed; {install}, or give the stage"
            ' env = { PATH = "…" } with its folder'
        )
    return found
