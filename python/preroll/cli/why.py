"""`preroll why REQUEST`: one request's life in the door, and what happened to its stage then."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cyclopts

from preroll.cli.call import call
from preroll.cli.place import state_of
from preroll.errors import InputError, UnavailableError
from preroll.events import Event, read
from preroll.serve.http import request
from preroll.serve.statedir import StateDir
from preroll.serve.survey import existing

app = cyclopts.App(name="preroll why", help=__doc__, version_flags=[])

AROUND_S = 5.0
"""How long before a request's arrival its stage's events may explain it."""
MAX_EVENTS = 40


@app.default
def why(request_id: str, /, *, state: Path | None = None, app: str | None = None) -> int:
    """Explains one request by its id (the response header x-request-id).

    Parameters
    ----------
    request_id: str
        As in x-request-id.
    state: Path
        State directory.
    app: str
        App file or name, instead of a state directory.
    """
    where = existing(state_of(app, state))
    life = life_of(where, request_id)
    for line in describe(life):
        print(line)
    for event in events_around(where, life):
        print(event_line(event))
    return 0


def life_of(state: StateDir, request_id: str) -> dict[str, Any]:
    """What the door remembers of a request. Raises InputError when it remembers nothing."""
    admin = f"unix:{state.socket('door.sock')}"
    response = request(admin, "GET", f"/why/{quote(request_id, safe='')}")
    if response.status == 404:
        raise InputError(
            f"the door remembers no request {request_id!r}; allowed: an id of x-request-id from"
            " its latest requests"
        )
    if response.status != 200:
        raise UnavailableError(f"the door answered {response.status}: {response.body[:300]!r}")
    value: dict[str, Any] = response.json()
    return value


def describe(life: dict[str, Any]) -> list[str]:
    """One line per fact; stamps as milliseconds since the request was accepted."""
    stamps = {k: v for k, v in life.items() if k.endswith("_ns") and isinstance(v, int)}
    begun_ns = min(stamps.values(), default=0)
    lines = []
    for name, value in life.items():
        if name in stamps:
            lines.append(f"{name.removesuffix('_ns'):<24}+{(value - begun_ns) / 1e6:.1f} ms")
        else:
            shown = value if isinstance(value, str) else json.dumps(value)
            lines.append(f"{name:<24}{shown}")
    return lines


def events_around(state: StateDir, life: dict[str, Any]) -> list[Event]:
    """Control's events of the request's stage from shortly before it came until its end."""
    stamps = [v for k, v in life.items() if k.endswith("_ns") and isinstance(v, int)]
    if not stamps:
        return []
    begin_ns, end_ns = min(stamps) - round(AROUND_S * 1e9), max(stamps)
    stage = life.get("stage")
    found = [
        event
        for event in read(state.events, limit=5000)
        if begin_ns <= event.t_ns <= end_ns and event.stage in (None, stage)
    ]
    return found[-MAX_EVENTS:]


def event_line(event: Event) -> str:
    stamp = time.strftime("%H:%M:%S", time.localtime(event.wall_s))
    facts = ", ".join(f"{k} {v}" for k, v in event.data.items() if not isinstance(v, list))
    return (
        f"{stamp}.{int(event.wall_s % 1 * 1000):03d}  {event.kind}  {event.replica or ''}  {facts}"
    )


def main(arguments: list[str]) -> int:
    return call(app, arguments)
