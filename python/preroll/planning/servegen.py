"""ServeGen's client parameters as workloads: real clients' burstiness, window by window."""

from __future__ import annotations

import lzma
from functools import lru_cache
from importlib.resources import files
from typing import Any

from preroll.errors import InputError

WINDOW_S = 600.0
QUIET_PER_HOUR = 60.0
DAYS = {"m-large": 14, "m-mid": 14, "m-small": 14, "mm-image": 1, "deepseek-r1": 1}

Window = dict[str, Any]
Clients = dict[tuple[str, int], list[Window]]


@lru_cache(maxsize=1)
def clients() -> Clients:
    """All clients that send anything: (category, number) to windows as `_core` takes them."""
    packed = files("preroll.planning").joinpath("data/traces/servegen.csv.xz").read_bytes()
    found: Clients = {}
    for line in lzma.decompress(packed).decode().splitlines()[1:]:
        category, client, window, requests, gaps, shape = line.split(",")
        found.setdefault((category, int(client)), []).append(
            {
                "start_s": int(window) * WINDOW_S,
                "count": float(requests),
                "shape": max(float(shape), 0.05),
                "weibull": gaps == "w",
            }
        )
    return found


def span_s(category: str) -> float:
    """Seconds that the parameters of a category cover."""
    return DAYS[category] * 86_400.0


def is_quiet(category: str, windows: list[Window]) -> bool:
    """Less than one request a minute on average over the whole span."""
    requests = sum(w["count"] for w in windows)
    return bool(requests / (span_s(category) / 3600.0) < QUIET_PER_HOUR)


def selected(what: str) -> Clients:
    """Clients by `quiet`, `CATEGORY` or `CATEGORY/NUMBER`. InputError lists what there is."""
    every = clients()
    if what == "quiet":
        return {key: windows for key, windows in every.items() if is_quiet(key[0], windows)}
    category, _, number = what.partition("/")
    found = {
        key: windows
        for key, windows in every.items()
        if key[0] == category and number in ("", str(key[1]))
    }
    if not found:
        raise InputError(
            f"servegen has no '{what}': use quiet, one of {', '.join(DAYS)}, or CATEGORY/NUMBER"
        )
    return found
