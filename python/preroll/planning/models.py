"""Finds a model: a folder, a config.json, or one of the built-in names."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from preroll.errors import InputError
from preroll.planning.shape import ModelShape, shape_of

LARGEST_CONFIG = 4 << 20
"""Bytes; the largest published config.json is under 200 kB."""


@cache
def builtin() -> dict[str, dict[str, Any]]:
    """Name → {repository, config} of the models that are known without a file."""
    text = (files("preroll.planning") / "data" / "models.json").read_text("utf-8")
    models: dict[str, dict[str, Any]] = json.loads(text)["models"]
    return models


def find(reference: str, precision: str | None = None) -> ModelShape:
    """The shape of a folder with config.json, a config file, or a built-in name (any case)."""
    path = Path(reference).expanduser()
    if path.is_dir():
        return _from_folder(path, precision)
    if path.is_file():
        return shape_of(_read(path), path.parent.name or path.stem, str(path), precision)
    wanted = reference.rsplit("/", 1)[-1].lower()
    for name, entry in builtin().items():
        if wanted in (name.lower(), entry["repository"].rsplit("/", 1)[-1].lower()):
            return shape_of(entry["config"], name, f"built-in {name}", precision)
    raise InputError(
        f"model {reference!r} is neither a folder, a config.json nor a built-in name; built in:"
        f" {', '.join(builtin())}"
    )


def _from_folder(folder: Path, precision: str | None) -> ModelShape:
    config = folder / "config.json"
    if not config.is_file():
        raise InputError(f"{folder} has no config.json; give the model's own folder")
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    size = sum(file.stat().st_size for file in weights) or None
    return shape_of(_read(config), folder.resolve().name, str(config), precision, size)


def _read(path: Path) -> object:
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise InputError(f"{path} is larger than 4 MiB; that is no config.json")
        config: object = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} is no readable JSON: {error}; give a model's config.json"
        ) from None
    return config


def reference(text: str) -> str:
    """What an engine calls the model: the repository of a built-in name, else `text` itself."""
    entry = next((e for n, e in builtin().items() if n.lower() == text.lower()), None)
    return str(entry["repository"]) if entry and not Path(text).exists() else text
