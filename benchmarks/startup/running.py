"""Runs `preroll profile` and `preroll ablate` as a user would; reads what they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surroundings import AS_NOBODY, WORKER, Place, around

from preroll.instruments.startup import profile_file
from preroll.instruments.startup.base import Profile

PREROLL = (sys.executable, "-m", "preroll")
READY = "--ready=^ready"
LIMIT_S = 180


def call(words: list[str], env: Mapping[str, str], folder: Path, allowed: tuple[int, ...]) -> str:
    """The output; RuntimeError with all of it for another exit status."""
    whole = {**os.environ, **env, "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        words, env=whole, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if ran.returncode not in allowed:
        raise RuntimeError(f"{' '.join(words)}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def profiled(place: Place, name: str, *, python: str, as_nobody: bool, only: str = "") -> Profile:
    """One profile of the planted worker; its truth is in the place under `name`."""
    out = place.folder / f"{name}.json"
    out.unlink(missing_ok=True)
    user = AS_NOBODY if as_nobody else ()
    with around(place, name, only) as found:
        words = [*user, *PREROLL, "profile", READY, f"--out={out}", "--", python, str(WORKER)]
        call(words, {**found.env, "HOME": str(place.folder)}, place.folder, (0,))
    return profile_file.read(out)


def ablated(place: Place, name: str, arguments: list[str], pairs: int) -> dict[str, Any]:
    """The result of one ablation of the worker's imports."""
    out, raw = place.folder / f"{name}.result.json", place.folder / f"{name}.raw"
    raw.unlink(missing_ok=True)
    with around(place, name, "imports") as found:
        words = [*PREROLL, "ablate", READY, f"--pairs={pairs}", "--no-explain", f"--out={raw}"]
        words += [f"--json={out}", *arguments, "--", sys.executable, str(WORKER)]
        call(words, found.env, place.folder, (0, 3))
    result: dict[str, Any] = json.loads(out.read_text())
    return result
