"""Fork servers: one process per environment and set of imports, from which replicas are forked.

A replica is forked only where its server says that it may; for any reason not to it is spawned,
and the reason is an event. A server is ended by nothing but the end of the app.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preroll.backends.base import HolderRefusedError, ProcessSpec
from preroll.backends.fork_start import ask_fork_server
from preroll.engines.base import Fork, Launch
from preroll.errors import PrerollError, UnavailableError
from preroll.serve.fork_process import process, server_id, socket_name

if TYPE_CHECKING:
    from preroll.serve.services import Services

MAX_FAILURES = 3
"""A server that has died so often is not tried again until control is started anew."""
STATE_TIMEOUT_S = 5.0


@dataclass(slots=True)
class ForkServer:
    """One server; `refusal` is why it may not be forked from, once that is known for good.

    `is_begun`: it runs, and need not listen yet.
    """

    id: str
    fork: Fork
    socket: Path
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    refusal: str | None = None
    failures: int = 0
    imports_s: float | None = None
    is_begun: bool = False


class ForkServers:
    """The servers of one app, started when first wanted, found again by their sockets."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._servers: dict[str, ForkServer] = {}

    def expect(self, launch: Launch) -> None:
        """Makes the server of such launches known, so that a running one is not dismissed."""
        if launch.fork is not None and not launch.pty:
            self._server(launch.fork)

    def begun(self, process_ids: Collection[str]) -> None:
        """Says of which of the expected servers the processes were begun ahead."""
        for server in self._servers.values():
            server.is_begun = server.id in process_ids

    @property
    def ids(self) -> set[str]:
        return set(self._servers)

    async def prepare(self) -> None:
        """Starts every server that is known, all at the same time."""
        servers = self._servers.values()
        await asyncio.gather(*(self._refusal(server, 600.0) for server in servers))

    async def start(self, stage: str, spec: ProcessSpec, launch: Launch) -> None:
        """Starts a process: a fork where that is wanted and possible, else a new program."""
        if launch.fork is not None and not launch.pty:
            server = self._server(launch.fork)
            refusal = await self._refusal(server, launch.start_timeout_s)
            if refusal is None:
                try:
                    await self._services.backend.fork(spec, server.socket)
                    return
                except (HolderRefusedError, UnavailableError) as error:
                    refusal = str(error)
            self._services.record("fork_refused", stage, spec.id, {"reason": refusal})
        await self._services.backend.start(spec)

    def _server(self, fork: Fork) -> ForkServer:
        name = server_id(fork)
        if name not in self._servers:
            socket = self._services.state.socket(socket_name(name))
            self._servers[name] = ForkServer(name, fork, socket)
        return self._servers[name]

    async def _refusal(self, server: ForkServer, timeout_s: float) -> str | None:
        """Why the server may not be forked from; None: it may, and is ready to."""
        async with server.lock:
            if server.refusal is None:
                try:
                    state = await self._state(server, timeout_s)
                except PrerollError as error:
                    return await self._failed(server, str(error))
                server.imports_s = state["imports_s"]
                if state["unfit"]:
                    server.refusal = "; ".join(state["unfit"])
                    self._services.record("fork_server_unfit", None, server.id, state)
                    await self._end(server)  # what it has imported serves nobody
            return server.refusal

    async def _state(self, server: ForkServer, timeout_s: float) -> dict[str, Any]:
        """The server's own word; it is started where nobody listens."""
        if not server.is_begun:
            with suppress(UnavailableError):
                return await self._ask(server, STATE_TIMEOUT_S if server.imports_s else timeout_s)
            await self._end(server)
            with suppress(OSError):
                server.socket.unlink(missing_ok=True)
            await self._services.backend.start(process(server.fork, server.socket))
        data = {"imports": list(server.fork.imports), "ahead": server.is_begun}
        self._services.record("fork_server_started", None, server.id, data)
        server.is_begun = False
        state = await self._first_word(server, timeout_s)
        self._services.record("fork_server_ready", None, server.id, state)
        return state

    async def _first_word(self, server: ForkServer, timeout_s: float) -> dict[str, Any]:
        """Of a server that has just been started."""
        ended = asyncio.create_task(self._services.backend.wait(server.id))
        asked = asyncio.create_task(self._listening(server, timeout_s))
        try:
            await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise UnavailableError("it ended before it could fork")
            return asked.result()
        finally:
            ended.cancel()
            asked.cancel()

    async def _listening(self, server: ForkServer, timeout_s: float) -> dict[str, Any]:
        """Its socket is there in a moment; its answer takes as long as its imports."""
        deadline_s = time.monotonic() + timeout_s
        while not server.socket.exists():
            if time.monotonic() > deadline_s:
                raise UnavailableError(f"it did not listen within {timeout_s:g} s")
            await asyncio.sleep(0.005)
        return await self._ask(server, timeout_s)

    async def _ask(self, server: ForkServer, timeout_s: float) -> dict[str, Any]:
        request = {"op": "state"}
        blocking = self._services.blocking
        return await blocking(ask_fork_server, server.socket, request, timeout_s)

    async def _failed(self, server: ForkServer, why: str) -> str:
        server.failures += 1
        data = {"error": why, "failures": server.failures}
        self._services.record("fork_server_failed", None, server.id, data)
        await self._end(server)
        if server.failures >= MAX_FAILURES:
            server.refusal = f"the fork server failed {server.failures} times: {why}"
        return f"the fork server failed: {why}"

    async def _end(self, server: ForkServer) -> None:
        with suppress(PrerollError):
            await self._services.backend.kill(server.id)
            await self._services.backend.release(server.id)
