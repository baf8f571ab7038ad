"""Merge flat figures into build/bench/NAME.json, so that several programs fill one record."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path

BENCH_DIR = Path(__file__).resolve().parents[2] / "build" / "bench"


def merge(
    name: str, figures: Mapping[str, float | str | None], directory: Path = BENCH_DIR
) -> Path:
    """Add or replace `figures` in `directory/name.json`; other keys stay. Returns the path.

    The file is replaced atomically and a lock file serialises concurrent writers. A record that
    is not a JSON object raises ValueError rather than being overwritten.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    with (directory / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = json.loads(path.read_text()) if path.exists() else {}
        if not isinstance(record, dict):
            raise ValueError(f"{path} holds {type(record).__name__}, not an object: remove it")
        record.update(figures)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        temporary.replace(path)
    return path
