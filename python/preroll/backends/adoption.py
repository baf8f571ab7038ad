"""What an earlier owner of a state directory left: asked all at once, each within a time-out."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preroll.backends.base import Adoption, Leftover, ProcessStatus
from preroll.backends.holder_client import HolderClient, parse_status
from preroll.backends.processes import end_tree, tree_of
from preroll.clock import boot_id
from preroll.errors import PrerollError

STATUS_TIMEOUT_S = 0.7
"""One holder that hangs must not hold up the others' adoption for long."""
SECOND_TIMEOUT_S = 2.0
"""On an overloaded machine one that lives and is slow must not be taken for one that hangs."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What became of one id; exactly one field beside `id` is set, or none: nothing is known."""

    id: str
    living: ProcessStatus | None = None
    ended: ProcessStatus | None = None
    leftover: Leftover | None = None
    unusable: str | None = None


async def adopt(holders: Path, run: Path, apart_from: frozenset[str]) -> Adoption:
    """Asks every holder below `holders`; ends trees whose holder is dead; cleans up after them."""
    folders = [folder for folder in _folders(holders) if folder.name not in apart_from]
    found = await asyncio.gather(*(_inspect(f, run / f"{f.name}.sock") for f in folders))
    living = [one.living for one in found if one.living]
    return Adoption(
        running=tuple(status for status in living if not status.has_exited),
        exited=tuple(status for status in living if status.has_exited),
        ended=tuple(one.ended for one in found if one.ended),
        leftovers=tuple(one.leftover for one in found if one.leftover),
        unusable={one.id: one.unusable for one in found if one.unusable},
    )


def _folders(holders: Path) -> list[Path]:
    return sorted(f for f in holders.iterdir() if f.is_dir()) if holders.is_dir() else []


async def _inspect(folder: Path, socket: Path) -> _Found:
    try:
        return _judge(folder.name, await _ask(folder, socket))
    except PrerollError as error:
        return await asyncio.to_thread(_inspect_silent, folder, socket, str(error))


async def _ask(folder: Path, socket: Path) -> dict[str, Any]:
    try:
        return await HolderClient(socket).raw_status(STATUS_TIMEOUT_S)
    except PrerollError:
        if not await asyncio.to_thread(is_holder_alive, folder):
            raise
    return await HolderClient(socket).raw_status(SECOND_TIMEOUT_S)


def _judge(holder_id: str, status: dict[str, Any]) -> _Found:
    """A holder has answered: is it the one, of this boot, in a language that we speak?"""
    try:
        parsed = parse_status(status)
    except PrerollError as error:
        return _Found(holder_id, unusable=str(error))
    if parsed.id != holder_id or parsed.boot_id != boot_id():
        return _Found(holder_id, unusable=f"its socket belongs to {parsed.id!r} of another boot")
    return _Found(holder_id, living=parsed)


def _inspect_silent(folder: Path, socket: Path, why: str) -> _Found:
    """No answer: the holder has ended in order, was killed, hangs, or is of an earlier boot."""
    try:
        with _locked(folder) as is_ours:
            if not is_ours:
                return _Found(folder.name, unusable=f"its holder lives and is silent: {why}")
            return _clean_up(folder, socket)
    except FileNotFoundError:  # an old folder that was just tidied away
        return _Found(folder.name)


def _clean_up(folder: Path, socket: Path) -> _Found:
    """While its folder is locked by us no new holder can begin in it."""
    status = last_status(folder)
    socket.unlink(missing_ok=True)
    if status.get("boot_id", boot_id()) != boot_id():
        return _Found(folder.name, ended=_close(folder, status, "the machine was started anew"))
    if status.get("state") == "exited":
        return _Found(folder.name, ended=_close(folder, status, None))
    try:
        killed = end_tree(tree_of(status, folder.name, folder.absolute()))
    except TimeoutError as error:
        return _Found(folder.name, unusable=f"its holder is dead and its processes {error}")
    reason = f"its holder was killed; {killed} processes of its tree were ended"
    _close(folder, status, reason)
    return _Found(folder.name, leftover=Leftover(folder.name, killed, reason))


def is_holder_alive(folder: Path) -> bool:
    """A holder has its folder locked for as long as it lives, whatever became of its pid."""
    try:
        with _locked(folder) as is_ours:
            return not is_ours
    except FileNotFoundError:
        return False


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """The lock that a living holder has on its folder: False when it is taken.

    A holder that begins meanwhile waits for a moment (`LOCK_WAIT` in the holder).
    """
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(file)


def last_status(folder: Path) -> dict[str, Any]:
    """status.json as the holder left it; empty when it is missing or not readable."""
    try:
        value = json.loads((folder / "status.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _close(folder: Path, status: dict[str, Any], error: str | None) -> ProcessStatus | None:
    """Notes the end that the holder could not note. None for a status that cannot be read."""
    if error is not None and status:
        status |= {"state": "exited", "error": error, "cgroups": []}
        _replace(folder / "status.json", status)
    try:
        return parse_status(status)
    except PrerollError:
        return None


def _replace(path: Path, value: dict[str, Any]) -> None:
    """Not written to a read-only disk: then the next adoption comes to the same conclusion."""
    temporary = path.with_suffix(".json.next")
    with suppress(OSError):
        temporary.write_text(json.dumps(value))
        temporary.replace(path)
