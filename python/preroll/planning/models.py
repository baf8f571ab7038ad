"""Finds a model: a folder, a config.json, or one of the built-in names."""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from preroll.errors import InputError
from preroll.planning.shape import ModelShape, shape_of

LARGEST_CONFIG = 4 << 20
"""Bytes; the largest published config.json is under 200 kB."""
TUNED = re.compile(r"-(instruct|it|chat|hf|base)(-hf)?$")


@cache
def builtin() -> dict[str, dict[str, Any]]:
    """Name → {repository, config} of the models that are known without a file."""
    text = (files("preroll.planning") / "data" / "models.json").read_text("utf-8")
    models: dict[str, dict[str, Any]] = json.loads(text)["models"]
    return {
        name: {"repository": entry["repository"], "config": _config(models, entry)}
        for name, entry in models.items()
    }


def _config(models: dict[str, dict[str, Any]], entry: dict[str, Any]) -> dict[str, Any]:
    """The entry's config; with `same_as`, that model's with what the entry's own changes."""
    base = models[entry["same_as"]]["config"] if "same_as" in entry else {}
    return {**base, **entry.get("config", {})}


def find(reference: str, precision: str | None = None) -> ModelShape:
    """The shape of a folder with config.json, a config file, or a built-in name.

    Names are taken in any case, with or without the organisation and a tuning suffix.
    """
    path = Path(reference).expanduser()
    if path.is_dir():
        return _from_folder(path, precision)
    if path.is_file():
        return shape_of(_read(path), path.parent.name or path.stem, str(path), precision)
    name = _known(reference)
    if name is None:
        raise InputError(_unknown(reference))
    return shape_of(builtin()[name]["config"], name, f"built-in {name}", precision)


def _plain(name: str) -> str:
    """What tells models apart in a name: no organisation, no tuning suffix, lower case."""
    bare = TUNED.sub("", name.rsplit("/", 1)[-1].lower())
    return bare.removeprefix("meta-")


@cache
def _names() -> dict[str, str]:
    """Plain spelling → built-in name; a built-in name goes before another one's repository."""
    entries = builtin()
    return {
        **{_plain(entry["repository"]): name for name, entry in entries.items()},
        **{_plain(name): name for name in entries},
    }


def _known(reference: str) -> str | None:
    return _names().get(_plain(reference))


def _unknown(reference: str) -> str:
    near = difflib.get_close_matches(_plain(reference), _names(), n=3, cutoff=0.6)
    hint = " or ".join(dict.fromkeys(_names()[n] for n in near))
    guess = f"did you mean {hint}?" if hint else ""
    return (
        f"model {reference!r} is neither a folder, a config.json nor a built-in name; {guess}"
        f"{' Else give' if hint else 'give'} its config.json, or a name of preroll plan --list"
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
    """What an engine calls the model: the repository of a built-in name, else `text` itself.

    A name with an organisation is already one, and is kept.
    """
    name = None if "/" in text or Path(text).exists() else _known(text)
    return text if name is None else str(builtin()[name]["repository"])
