"""`preroll why REQUEST`: one request's life in the door, and what happened to its stage then."""

from __future__ import annotations

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
    """The request's life in the order it was lived; stamps count from its arrival."""
    status = f", status {life['status']}" if life.get("status") else ""
    replica = f"to {life['replica']}" if life.get("replica") else ""
    attempts = f", attempt {life['attempts']}" if life.get("attempts", 1) > 1 else ""
    told = f"told {life.get('expected_wait_ms', 0):,.1f} ms, waited {life['queue_ms']:,.1f} ms"
    steps = [
        ("queued", life.get("queued_ns"), told),
        ("admitted", life.get("admitted_ns"), replica + attempts),
        ("first byte", life.get("first_byte_ns"), ""),
        ("ended", life.get("ended_ns"), life["outcome"]),
    ]
    lines = [f"{life['id']}  stage {life['stage']}, {life['outcome']}{status}"]
    for name, stamp, note in steps:
        if stamp is not None:
            after = (stamp - life["arrived_ns"]) / 1e6
            lines.append(f"  {name:<11}{after:>+12,.1f} ms  {note}".rstrip())
    if life.get("pace"):
        lines.append(heard(life["pace"]))
    return [*lines, neighbours(life)]


def heard(pace: dict[str, Any]) -> str:
    """A paced stream as its listener heard it."""
    factor = pace["realtime_factor"]
    speed = "" if factor is None else f", {factor:.2f} of real time"
    return (
        f"  pace       {pace['frames']} frames{speed}, {pace['underruns']} underruns,"
        f" worst gap {pace['worst_gap_ms']:,.1f} ms"
    )


def neighbours(life: dict[str, Any]) -> str:
    """Who shared the replica: other people's requests are what makes one slow."""
    count, ids = life.get("neighbours", 0), life.get("neighbour_ids", [])
    named = f": {', '.join(ids)}" if ids else ""
    return f"  neighbours {count} in flight while it was{named}"


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
