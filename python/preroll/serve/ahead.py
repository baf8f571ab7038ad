"""Fork servers begun before control has imported itself: both import at the same time.

What they need is read from the app file plainly, before it is checked: only tables with nothing
to resolve count, and whatever is odd is left to the check. Control takes what was begun here, and
dismisses it like any other process where no stage wants it.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preroll.backends.holder_program import (
    Spawned,
    find_program,
    spawn_holder,
    to_json,
    write_spec,
)
from preroll.backends.sockets import prepare_run
from preroll.engines.base import Fork
from preroll.engines.python_environment import PRINTS_AT_ONCE, Environment
from preroll.errors import PrerollError
from preroll.serve.fork_process import process, server_id, socket_name
from preroll.serve.statedir import Lock, StateDir

MAX_FILE_BYTES = 1 << 20
KINDS = {"python": str, "cwd": str, "pty": bool}


@dataclass(slots=True)
class Ahead:
    """What was begun for a state directory: its lock, and holders by the ids of their processes.

    Without a lock nothing was begun.
    """

    state: StateDir
    lock: Lock | None = None
    begun: dict[str, Spawned] = field(default_factory=dict)
    _is_new: bool = False
    _is_taken: bool = False

    def begin(self, file: Path) -> None:
        """Begins the fork servers of an app file, where nothing of the app runs.

        Complains of nothing: what is wrong here, control finds too, and says it.
        """
        forks = {server_id(fork): fork for fork in forks_of(file)}
        if not forks or any(self.state.run.glob("*.sock")):
            return
        self._is_new = not self.state.root.exists()
        try:
            self.state.prepare()
            self.lock = Lock(self.state)
        except PrerollError:
            return
        for name, fork in forks.items():
            with suppress(PrerollError, OSError):
                self.begun[name] = _spawn(name, fork, self.state)

    def hand_over(self) -> dict[str, Spawned]:
        """To the controller, whose affair all of it is from now on."""
        self._is_taken = True
        return self.begun

    def undo(self) -> None:
        """Ends what was begun and leaves nothing, where no controller has taken it."""
        if self.lock is None or self._is_taken:
            return
        if self.begun:
            import asyncio

            asyncio.run(self._end())
        if self._is_new:
            shutil.rmtree(self.state.root, ignore_errors=True)
        self.lock.release()

    async def _end(self) -> None:
        from preroll.backends.local import LocalBackend

        backend = LocalBackend(self.state.root)
        for name, spawned in self.begun.items():
            with suppress(PrerollError):
                await backend.take(spawned)
                await backend.kill(name)
                await backend.release(name)
            self.state.socket(socket_name(name)).unlink(missing_ok=True)
        backend.close()


def _spawn(name: str, fork: Fork, state: StateDir) -> Spawned:
    program, run = find_program(), prepare_run(state.root.absolute())
    socket = run / socket_name(name)
    socket.unlink(missing_ok=True)
    folder = state.root.absolute() / "holders" / name
    value = to_json(process(fork, socket), folder, run / f"{name}.sock")
    return spawn_holder(program, write_spec(folder, value))


def forks_of(file: Path) -> list[Fork]:
    """The fork servers that the plain tables of an app file ask for, as its engine would."""
    try:
        # Only what can be read again by whoever checks it: no pipe.
        if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
            return []
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return list(_forks(data.get("stage"), file.absolute().parent))


def _forks(stages: Any, directory: Path) -> Iterator[Fork]:
    for table in stages.values() if isinstance(stages, dict) else ():
        if not isinstance(table, dict) or not _is_plain(table):
            continue
        cwd = directory / table["cwd"] if table.get("cwd") else directory
        with suppress(PrerollError):
            python = Environment.of(table.get("python"), directory)
            python.check()
            env = PRINTS_AT_ONCE | table.get("env", {})
            yield python.fork_server(table["imports"], env | python.variables(env), cwd)


def _is_plain(table: dict[str, Any]) -> bool:
    """Whether it is a stage whose fork server is known without resolving anything."""
    imports, env = table.get("imports"), table.get("env", {})
    return (
        table.get("engine") == "python"
        and not table.get("pty")
        and all(isinstance(table.get(key, kind()), kind) for key, kind in KINDS.items())
        and isinstance(imports, list)
        and bool(imports)
        and all(isinstance(name, str) and name for name in imports)
        and isinstance(env, dict)
        and all(isinstance(value, str) for value in env.values())
    )
