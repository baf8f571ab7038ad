"""Secrets are in the app file by reference only; here a reference becomes its value."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from preroll.errors import InputError

if TYPE_CHECKING:
    from preroll.config.schema import Key


def resolve_secret(reference: str, directory: Path) -> str:
    """The value behind `env:NAME` or `file:PATH` (relative to `directory`), newline stripped.

    Raises InputError when there is none or it is empty; the message never holds the value.
    """
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = os.environ.get(name, "")
        missing = f"the environment variable {name} is not set"
    else:
        path = directory / name
        try:
            value = path.read_text().strip()
            missing = f"the file {path} is empty"
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            value, missing = "", f"the file {path} cannot be read ({reason})"
    if not value:
        raise InputError(f"secret {reference}: {missing}")
    return value


def key_sha256(key: Key, directory: Path) -> str:
    """The SHA-256 in hex of an API key, as the door's tables hold it."""
    if key.sha256 is not None:
        return key.sha256
    assert key.key is not None
    return hashlib.sha256(resolve_secret(key.key, directory).encode()).hexdigest()
