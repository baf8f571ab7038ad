"""A replica of a running app held for a measurement: the door sends it nothing new meanwhile.

The hold is a file (docs/protocol.md) that names the holding process: it ends with the process, so
that a killed instrument takes no capacity away for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from preroll.backends.processes import facts_of, is_alive
from preroll.errors import InputError, UnavailableError
from preroll.serve.door import Door
from preroll.serve.statedir import StateDir, read_json, write_json

PATIENCE_S = 60.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class HeldReplica:
    """`address` and `keepalive_ms` as in the door's tables."""

    replica: str
    address: str
    keepalive_ms: int


def held(state: StateDir) -> str | None:
    """The replica that a living process holds; None when there is none."""
    value = read_json(state.held)
    try:
        is_held = is_alive(int(value["pid"]), int(value["start_ticks"]))
        return str(value["replica"]) if is_held else None
    except (KeyError, TypeError, ValueError):
        return None


@contextmanager
def held_replica(state: StateDir, stage: str) -> Iterator[HeldReplica]:
    """One ready replica out of the door's rotation and with nothing in flight.

    Raises InputError when the stage has no ready replica or one is held already, UnavailableError
    when its requests do not end within a minute.
    """
    if held(state) is not None:
        raise InputError(f"a replica of {state.root} is held by another measurement already")
    ready = [r for r in _replicas(state, stage) if r["state"] == "ready"]
    if not ready:
        raise InputError(
            f"stage {stage} of {state.root} has no ready replica; first: preroll serve, or leave"
            " --served out and a replica is started for the measurement"
        )
    # The last one: with several, the door sends it the least.
    chosen = ready[-1]
    replica = chosen["id"]
    own = facts_of(os.getpid())
    assert own is not None
    write_json(state.held, {"replica": replica, "pid": own.pid, "start_ticks": own.start_ticks})
    try:
        _wait_until_idle(state, stage, replica)
        yield HeldReplica(replica, chosen["address"], chosen["keepalive_ms"])
    finally:
        state.held.unlink(missing_ok=True)


def _replicas(state: StateDir, stage: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = read_json(state.tables)["stages"][stage]["replicas"]
        return found
    except (KeyError, TypeError):
        return []


def _wait_until_idle(state: StateDir, stage: str, replica: str) -> None:
    door = Door(f"unix:{state.socket('door.sock')}")
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        entry = next((r for r in _replicas(state, stage) if r["id"] == replica), None)
        if entry is None:
            raise UnavailableError(f"replica {replica} ended before it could be measured")
        if entry["state"] == "draining" and door.in_flight(stage, replica) == 0:
            return
        time.sleep(POLL_S)
    raise UnavailableError(
        f"replica {replica} still had requests after {PATIENCE_S:.0f} s, or no `preroll serve` runs"
    )
