"""The local backend: each process is owned by a holder of this machine (docs/protocol.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from preroll.backends import adoption
from preroll.backends.base import Adoption, Line, ProcessSpec, ProcessStatus
from preroll.backends.fork_start import fork_holder
from preroll.backends.holder_client import CALL_TIMEOUT_S, HolderClient, parse_status
from preroll.backends.holder_program import (
    FolderBusyError,
    Spawned,
    find_program,
    spawn_holder,
    to_json,
    write_spec,
)
from preroll.backends.holder_start import BUSY_WAIT_S, Reaper, settled
from preroll.backends.sockets import prepare_run
from preroll.errors import PrerollError, UnavailableError

KILL_ALLOWANCE_S = 30.0
"""How long after the grace a killed tree may take to be gone (a process in a system call)."""


class LocalBackend:
    """Processes of one state directory, each under its own holder. Implements `Backend`.

    Holders and what they own outlive this object; `close` only lets go of them.
    """

    def __init__(self, root: Path, program: Path | None = None) -> None:
        """Raises InputError when `root` cannot hold the sockets, UnavailableError when the
        holder program is missing."""
        self.root = root.absolute()
        self._program = program or find_program()
        self._run = prepare_run(self.root)
        self._reaper = Reaper()
        self._starting: set[str] = set()

    def folder(self, process_id: str) -> Path:
        """Where the holder keeps spec.json, status.json and the log."""
        return self.root / "holders" / process_id

    def client(self, process_id: str) -> HolderClient:
        return HolderClient(self._run / f"{process_id}.sock")

    async def start(self, spec: ProcessSpec) -> ProcessStatus:
        client = self.client(spec.id)
        self._starting.add(spec.id)
        try:
            path = await self._write_spec(spec)
            await settled(spawn_holder(self._program, path), self._reaper)
            return await client.status()
        finally:
            self._starting.discard(spec.id)

    async def take(self, begun: Spawned) -> None:
        """A holder that was begun before this object was there: waits until it is up."""
        await settled(begun, self._reaper)

    async def fork(self, spec: ProcessSpec, server: Path) -> ProcessStatus:
        self._starting.add(spec.id)
        try:
            path = await self._write_spec(spec)
            await fork_holder(self._program.absolute(), path, server)
            return await self.client(spec.id).status()
        finally:
            self._starting.discard(spec.id)

    async def _write_spec(self, spec: ProcessSpec) -> Path:
        folder, socket = self.folder(spec.id), self.client(spec.id).socket
        deadline_s = time.monotonic() + BUSY_WAIT_S
        while True:
            try:
                return write_spec(folder, to_json(spec, folder, socket))
            except FolderBusyError:
                if time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(0.01)

    async def adopt(self) -> Adoption:
        """See `Backend.adopt`; what is just being started is left alone."""
        return await adoption.adopt(self.root / "holders", self._run, frozenset(self._starting))

    async def list(self) -> tuple[ProcessStatus, ...]:
        ids = sorted(path.stem for path in self._run.glob("*.sock"))
        asked = await asyncio.gather(*(self._status_or_none(one) for one in ids))
        return tuple(status for status in asked if status is not None)

    async def _status_or_none(self, process_id: str) -> ProcessStatus | None:
        """With more patience for a holder that lives: it may be slow on a busy machine."""
        folder = self.folder(process_id)
        if not folder.is_dir():
            return None  # a socket of the door, not of a holder
        for timeout_s in (adoption.STATUS_TIMEOUT_S, adoption.SECOND_TIMEOUT_S):
            try:
                return await self.client(process_id).status(timeout_s)
            except PrerollError:
                if not await asyncio.to_thread(adoption.is_holder_alive, folder):
                    return None
        return None

    async def status(self, process_id: str) -> ProcessStatus:
        """Of a process whose holder has been released: the last one it wrote."""
        try:
            return await self.client(process_id).status()
        except UnavailableError:
            last = adoption.last_status(self.folder(process_id))
            if last.get("state") != "exited":
                raise
            return parse_status(last)

    def lines(
        self, process_id: str, since: int = 0, *, follow: bool = False
    ) -> AsyncIterator[Line]:
        return self.client(process_id).lines(since, follow=follow)

    async def wait(self, process_id: str) -> ProcessStatus:
        """Of a process whose holder has been released, or ended with it: its last status."""
        try:
            return await self.client(process_id).ended({"op": "wait"}, None)
        except UnavailableError:
            return await self.status(process_id)

    async def signal(self, process_id: str, signal: int) -> None:
        await self.client(process_id).call({"op": "signal", "signal": int(signal)})

    async def stop(self, process_id: str, grace_s: float | None = None) -> ProcessStatus:
        """Without `grace_s` the specification's grace counts; see `Backend.stop`."""
        request: dict[str, Any] = {"op": "stop"}
        if grace_s is None:
            return await self.client(process_id).ended(request, None)
        request["grace_ms"] = round(grace_s * 1000)
        return await self.client(process_id).ended(request, grace_s + KILL_ALLOWANCE_S)

    async def kill(self, process_id: str) -> ProcessStatus:
        return await self.client(process_id).ended({"op": "kill"}, KILL_ALLOWANCE_S)

    async def release(self, process_id: str) -> None:
        await self.client(process_id).call({"op": "release"})

    async def upgrade(
        self, process_id: str, argv: tuple[str, ...], env: Mapping[str, str] | None = None
    ) -> int:
        request = {"op": "upgrade", "argv": list(argv), "env": None if env is None else dict(env)}
        pid: int = (await self.client(process_id).call(request, CALL_TIMEOUT_S))["pid"]
        return pid

    async def retire(self, process_id: str) -> int:
        pid: int = (await self.client(process_id).call({"op": "retire"}))["pid"]
        return pid

    def close(self) -> None:
        """Lets go of the holders that this object started; all of them live on."""
        self._reaper.close()
