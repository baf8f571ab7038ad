"""What runs in a state directory, found without control's help: for `ps`, `logs`, `stop`, `top`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from preroll.backends.base import ProcessStatus
from preroll.backends.local import LocalBackend
from preroll.errors import InputError, PrerollError, UnavailableError
from preroll.serve.door import Door
from preroll.serve.doorhouse import DOOR_ID
from preroll.serve.fork_process import PREFIX
from preroll.serve.record import ReplicaRecord
from preroll.serve.statedir import StateDir, owner, read_json

MAX_PASSES = 10
PASS_S = 0.25
"""A holder that was being started when control was killed shows itself this much later."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One replica: its process as the holder sees it, its record, its counters in the door."""

    status: ProcessStatus
    record: ReplicaRecord | None
    state: str
    counters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survey:
    """`control_pid` None: no control runs. `door` None: no door runs. `stages`: the door's view.
    `forks`: fork servers."""

    control_pid: int | None
    door: ProcessStatus | None
    replicas: tuple[Seen, ...]
    stages: dict[str, Any]
    control: dict[str, Any]
    forks: tuple[ProcessStatus, ...] = ()


def existing(state: StateDir) -> StateDir:
    """The directory, if something was ever served from it. Raises InputError."""
    if not state.holders.is_dir():
        raise InputError(
            f"{state.root} is no state directory of preroll; give the one of `preroll serve`"
            " with --state DIR"
        )
    return state


async def survey(state: StateDir) -> Survey:
    """Asks everything at the same time; who does not answer is not in it."""
    backend = LocalBackend(existing(state).root)
    statuses, stages = await asyncio.gather(backend.list(), asyncio.to_thread(_door_state, state))
    backend.close()
    control = read_json(state.status) or {}
    pid = owner(state)
    by_id = {status.id: status for status in statuses}
    forks = tuple(s for s in statuses if s.id.startswith(PREFIX))
    others = [s for s in statuses if s.id != DOOR_ID and s not in forks]
    replicas = tuple(_seen(state, s, stages, control) for s in others)
    return Survey(pid, by_id.get(DOOR_ID), replicas, stages, control, forks)


def _door_state(state: StateDir) -> dict[str, Any]:
    try:
        return Door(f"unix:{state.socket('door.sock')}").state()
    except UnavailableError:
        return {}


def _seen(
    state: StateDir, status: ProcessStatus, stages: dict[str, Any], control: dict[str, Any]
) -> Seen:
    record = ReplicaRecord.from_json(read_json(state.replica_file(status.id)))
    name = record.stage if record else ""
    counters = stages.get(name, {}).get("replicas", {}).get(status.id, {})
    told = control.get("stages", {}).get(name, {}).get("replicas", {}).get(status.id, {})
    shown = told.get("state")
    if status.has_exited:
        shown = "stopped"
    elif shown is None:
        shown = "ready" if record and record.ready_ns else "booting"
    return Seen(status, record, str(shown), counters)


async def end_all(state: StateDir, drain_s: float, grace_s: float) -> int:
    """Ends door and replicas of a directory that no control serves; returns how many trees.

    The door first, so that what was admitted is finished. Raises UnavailableError when something
    could not be ended.
    """
    backend = LocalBackend(existing(state).root)
    count = 0
    try:
        for _ in range(MAX_PASSES):
            adoption = await backend.adopt()
            found = [status.id for status in (*adoption.running, *adoption.exited)]
            await _end_found(backend, found, drain_s, grace_s)
            count += len(adoption.running) + len(adoption.leftovers)
            await asyncio.sleep(PASS_S)
            left = [status.id for status in await backend.list()]
            if not left:
                break
    finally:
        backend.close()
    if left or adoption.unusable:
        raise UnavailableError(f"still running: {', '.join([*left, *adoption.unusable])}")
    return count


async def _end_found(backend: LocalBackend, ids: list[str], drain_s: float, grace_s: float) -> None:
    if DOOR_ID in ids:
        await _end(backend, DOOR_ID, drain_s)
    await asyncio.gather(*(_end(backend, one, grace_s) for one in ids if one != DOOR_ID))


async def _end(backend: LocalBackend, process_id: str, grace_s: float) -> None:
    try:
        await backend.stop(process_id, grace_s)
        await backend.release(process_id)
    except PrerollError:
        return  # what is left is counted afterwards
