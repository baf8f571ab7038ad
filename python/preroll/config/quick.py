"""An app without a file: `preroll serve vllm ORG/MODEL -- FLAGS` and its like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from preroll.config.load import app_of_data
from preroll.config.schema import App
from preroll.engines.usage import USAGE
from preroll.errors import InputError

STAGE = "main"
"""The name of the only stage of an app without a file."""

_KEY = {"asgi": "app", "url": "url"}


def quick_app(
    engine: str,
    target: str | None,
    flags: Sequence[str] = (),
    *,
    serve: dict[str, Any] | None = None,
    stage: dict[str, Any] | None = None,
) -> App:
    """The app of one stage, `STAGE`, that a command line describes.

    `engine`: a key of `USAGE`. `target`: the model, application or URL; None for `command`.
    `flags`: what follows `--`, verbatim. `serve` and `stage`: further keys as in an app file
    ({"listen": "0.0.0.0:80"}, {"models": ["name"]}). Relative paths are relative to the working
    directory. Raises `AppFileError` with every problem, `InputError` for a wrong shape.
    """
    if engine not in USAGE:
        raise InputError(f"unknown engine {engine!r}; allowed: {', '.join(USAGE)}, or an app file")
    table: dict[str, Any] = {"engine": engine, **(stage or {})}
    if engine == "command":
        if target is not None or not flags:
            raise InputError(f"engine 'command' takes its program after --: {USAGE[engine]}")
        table["command"] = list(flags)
    elif target is None:
        raise InputError(f"engine {engine!r} needs its target: {USAGE[engine]}")
    else:
        table[_KEY.get(engine, "model")] = target
        if flags:
            table["args"] = list(flags)
    data = {"serve": serve or {}, "stage": {STAGE: table}}
    return app_of_data(data, Path.cwd() / "command-line", "command line", text="")
