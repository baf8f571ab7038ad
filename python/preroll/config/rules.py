"""Rules that join several keys of an app file, and keys whose feature this version lacks."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from preroll.config.calls import call_problems
from preroll.config.problems import KeyPath, Problem
from preroll.config.schema import App, Serve, Stage

NOT_BUILT = {
    "colocate": "sharing a process is not part of this version",
    "weights": "placing weights is not part of this version; give 'model', fetched by the engine",
}

# Keys that only some engines have. A key that an engine ignores would be a silent mistake.
NEEDS: dict[str, tuple[str, ...]] = {
    "llama.cpp": ("model",),
    "vllm": ("model",),
    "sglang": ("model",),
    "trtllm": ("model",),
    "python": ("class",),
    "asgi": ("app",),
    "command": ("command",),
    "url": ("url",),
}
ONLY: dict[str, tuple[str, ...]] = {
    "command": ("command",),
    "app": ("asgi",),
    "class": ("python",),
    "options": ("python",),
    "imports": ("python",),
    "python": ("python",),
    "calls": ("python",),
    "url": ("url",),
    "port": ("command",),
    "api_key": ("url", "vllm"),
}
NO_PROCESS = (
    *("args", "env", "cwd", "pty", "gpus", "gpu_memory", "cpus", "memory", "replicas", "scale"),
    *("start_timeout", "stop_grace", "kv_tokens", "model"),
)


def keep_unbuilt_keys_out(data: dict[str, Any]) -> tuple[list[Problem], dict[str, Any]]:
    """Problems for keys of features that are not built, and the data without those keys."""
    stages = data.get("stage")
    if not isinstance(stages, dict):
        return [], data
    problems: list[Problem] = []
    kept: dict[str, Any] = {}
    for name, table in stages.items():
        if not isinstance(table, dict):
            kept[name] = table
            continue
        kept[name] = {k: v for k, v in table.items() if k not in NOT_BUILT}
        for key in table:
            if key in NOT_BUILT:
                message = f"unknown key {key!r}: {NOT_BUILT[key]}"
                problems.append(Problem(("stage", name, key), message, True))
    return problems, {**data, "stage": kept}


def problems_in(app: App, raw: Mapping[str, Any]) -> list[Problem]:
    """Everything that is wrong although each value alone is allowed.

    `raw`: the stages as the file has them, with those and their keys that `app` lacks because
    they are wrong by themselves.
    """
    problems = list(_serve(app.serve))
    if not raw:
        problems.append(Problem(("stage",), "no stage; allowed: at least one [stage.NAME]", True))
    for name, stage in app.stages.items():
        prefix: KeyPath = ("stage", name)
        problems += [replace(p, where=(*prefix, *p.where)) for p in _stage(stage, app, raw[name])]
    problems += _routes(app, raw)
    problems += _models(app)
    problems += call_problems(app, raw)
    return problems


def _serve(serve: Serve) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, address in enumerate(serve.listen):
        if address in seen and not address.endswith(":0"):
            yield Problem(("serve", "listen", i), f"{address!r} is given twice")
        seen.add(address)
    if serve.admin and serve.admin in serve.listen:
        yield Problem(("serve", "admin"), f"{serve.admin!r} is also a public address")
    if serve.admin and not is_loopback(serve.admin) and serve.admin_token is None:
        message = f'{serve.admin!r} is open to the network; it needs admin_token = "env:NAME"'
        yield Problem(("serve", "admin"), message)
    ids = [key.id for key in serve.keys]
    for i, key_id in enumerate(ids):
        if key_id in ids[:i]:
            yield Problem(("serve", "keys", i, "id"), f"{key_id!r} is given twice")


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _stage(stage: Stage, app: App, raw: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _keys_of_engine(stage, set(raw))
    yield from _scaling(stage)
    if stage.gpus and stage.gpu_memory_bytes:
        message = "gpu_memory is a share of one device; leave out gpus"
        yield Problem(("gpu_memory",), message, True)
    for i, warmup in enumerate(stage.warmup or ()):
        if isinstance(warmup.body, str) and not (app.directory / warmup.body).is_file():
            path = app.directory / warmup.body
            yield Problem(("warmup", i, "body"), f"{warmup.body!r}: there is no file {path}")
        if warmup.method == "GET" and warmup.body is not None:
            yield Problem(("warmup", i, "method"), "'GET' has no body; allowed here: POST, PUT")
    if not _misses_needs(stage) and set(raw) <= _given(stage):
        from preroll.engines.base import get_engine

        engine = get_engine(stage.engine)
        yield from engine.check(stage)
        yield from engine.check_files(stage, app.directory)


def _given(stage: Stage) -> set[str]:
    fields = type(stage).model_fields
    return {fields[name].alias or name for name in stage.model_fields_set}


def _misses_needs(stage: Stage) -> bool:
    return not set(NEEDS[stage.engine]) <= _given(stage)


def _keys_of_engine(stage: Stage, given: set[str]) -> Iterator[Problem]:
    for key in NEEDS[stage.engine]:
        if key not in given:
            yield Problem((), f"missing key {key!r}: engine {stage.engine!r} needs it", True)
    for key, engines in ONLY.items():
        if key in given and stage.engine not in engines:
            message = f"not a key of engine {stage.engine!r}; only of {' and '.join(engines)}"
            yield Problem((key,), message, True)
    if stage.engine == "url":
        for key in NO_PROCESS:
            if key in given:
                message = "engine 'url' is a server that already runs; remove this key"
                yield Problem((key,), message, True)


def _scaling(stage: Stage) -> Iterator[Problem]:
    if stage.replicas is not None and stage.scale is not None:
        yield Problem(("replicas",), "give replicas or scale, not both", True)
    scaling = stage.scaling
    if scaling.min_replicas > scaling.max_replicas:
        message = f"min {scaling.min_replicas} is above max {scaling.max_replicas}"
        yield Problem(("scale",), message)
    if stage.port is not None and scaling.max_replicas > 1:
        message = (
            f"{stage.port}: {scaling.max_replicas} replicas cannot share one port; use {{port}}"
        )
        yield Problem(("port",), message)


def _routes(app: App, named: Collection[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, route in enumerate(app.routes):
        if route.stage not in named:
            near = difflib.get_close_matches(route.stage, list(named), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            allowed = ", ".join(named) or "none is defined"
            message = f"there is no stage {route.stage!r}; allowed: {allowed}{hint}"
            yield Problem(("route", i, "stage"), message)
        if route.path in seen:
            yield Problem(("route", i, "path"), f"{route.path!r} has a route already")
        seen.add(route.path)
        if route.strip_prefix and not route.path.endswith("/*"):
            message = f"{route.path!r} has no prefix to strip; allowed with a path that ends in /*"
            yield Problem(("route", i, "strip_prefix"), message, True)


def _models(app: App) -> Iterator[Problem]:
    """A request names one model: two stages that serve the same name could not be told apart."""
    from preroll.engines.base import get_engine

    owner: dict[str, str] = {}
    for name, stage in app.stages.items():
        if _misses_needs(stage):
            continue
        for model in get_engine(stage.engine).models(stage):
            if model in owner:
                message = f"model {model!r} is already served by stage {owner[model]!r}"
                yield Problem(("stage", name, "models" if stage.models else "model"), message)
            owner[model] = name
