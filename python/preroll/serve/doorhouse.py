"""The door's process: started under a holder that restarts it, adopted, upgraded, ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preroll import __version__
from preroll.backends.base import HolderRefusedError, Listen, ProcessStatus
from preroll.config import App
from preroll.config.secrets import resolve_secret
from preroll.errors import InputError, PrerollError, UnavailableError
from preroll.serve.spawning import door_spec, program
from preroll.serve.statedir import read_json, write_json

if TYPE_CHECKING:
    from preroll.serve.services import Services

DOOR_ID = "door-1"
"""Id of its holder; STATE/run/door.sock is the admin socket of the door itself."""
START_TIMEOUT_S = 15.0
FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 5.0
"""Between two attempts to bring a door back whose holder is gone, doubling."""


class DoorHouse:
    """Keeps one door running for an app; `addresses` is where it listens for the public."""

    id = DOOR_ID

    def __init__(self, app: App, services: Services) -> None:
        self._app = app
        self._services = services
        self._backend = services.backend
        self.addresses: list[str] = []
        self._wanted = tuple(app.serve.listen)

    async def ensure(self, found: ProcessStatus | None) -> list[str]:
        """Adopts the running door or starts one; returns what the user should know.

        Raises InputError when an address cannot be bound, UnavailableError when it does not answer.
        """
        warnings: list[str] = []
        if found is not None and not found.has_exited:
            warnings = await self._adopt(found)
            await self._answering()
            return warnings
        if found is not None:
            with suppress(PrerollError):
                await self._backend.release(DOOR_ID)
        await self._start()
        try:
            await self._answering()
        except PrerollError:
            await self.stop(0.5)
            raise
        return warnings

    async def stop(self, drain_s: float) -> None:
        """Drains: accepting ends, running streams finish within `drain_s`, then all ends."""
        with suppress(PrerollError):
            await self._backend.stop(DOOR_ID, drain_s)
        with suppress(PrerollError):
            await self._backend.release(DOOR_ID)

    async def watch(self) -> None:
        """Brings the door back for ever when its holder is gone, which restarts the door itself."""
        pause_s = FIRST_PAUSE_S
        while True:
            with suppress(UnavailableError):
                await self._backend.wait(DOOR_ID)
            try:
                is_new = await self._bring_back()
            except PrerollError as error:
                self._services.record("door_failed", data={"error": str(error)}, durable=False)
                is_new = False
            pause_s = FIRST_PAUSE_S if is_new else min(2 * pause_s, MAX_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _bring_back(self) -> bool:
        """True when a new door answers; False when the holder lives after all."""
        adoption = await self._backend.adopt()
        if DOOR_ID in adoption.unusable or any(s.id == DOOR_ID for s in adoption.running):
            return False
        reason = next((one.reason for one in adoption.leftovers if one.id == DOOR_ID), "it ended")
        self._services.record("door_lost", data={"reason": reason})
        if any(status.id == DOOR_ID for status in adoption.exited):
            await self._backend.release(DOOR_ID)
        await self._start()
        await self._answering()
        return True

    async def _start(self) -> None:
        state = self._services.state
        listen = [Listen("public", f"tcp:{address}") for address in self._wanted]
        listen.append(Listen("internal", f"unix:{state.socket('internal.sock')}"))
        listen.append(Listen("admin", self._services.door.admin))
        status = await self._backend.start(door_spec(DOOR_ID, self._argv(), listen))
        self._remember_argv()
        self._listens(status, self._wanted)
        self._services.record("door_started", data={"listen": self.addresses})

    def _listens(self, status: ProcessStatus, specified: Sequence[str]) -> None:
        """Notes the real addresses; a door that must be started anew comes back on the same.

        `specified` counts for a holder of an older version, which does not tell them.
        """
        public = [one.address for one in status.listen if one.name == "public"]
        self.addresses = [address.removeprefix("tcp:") for address in public] or [*specified]
        self._wanted = tuple(self.addresses)

    async def _adopt(self, found: ProcessStatus) -> list[str]:
        spec = read_json(self._services.state.holder(DOOR_ID) / "spec.json") or {}
        was = [
            str(entry["address"]).removeprefix("tcp:")
            for entry in spec.get("listen", [])
            if entry.get("name") == "public"
        ]
        self._listens(found, was)
        warnings = []
        if not is_same(was, self._app.serve.listen):
            wanted = ", ".join(self._app.serve.listen)
            warnings.append(
                f"the door goes on listening on {', '.join(self.addresses)}; the app file now says"
                f" {wanted}: `preroll stop`, then `preroll serve`, moves it"
            )
        version = await self._version()
        running = read_json(self._argv_file) or spec.get("argv")
        if running != list(self._argv()) or version not in (None, __version__):
            warnings += await self._upgrade(version)
        self._services.record("door_adopted", data={"listen": was, "version": version})
        return warnings

    async def _version(self) -> str | None:
        with suppress(PrerollError):
            health = await self._services.blocking(self._services.door.health)
            return str(health["version"])
        return None

    async def _upgrade(self, version: str | None) -> list[str]:
        """A second generation on the same sockets; the first one finishes its streams."""
        try:
            await self._backend.upgrade(DOOR_ID, self._argv())
            await self._backend.retire(DOOR_ID)
            self._remember_argv()
        except PrerollError as error:
            if isinstance(error, HolderRefusedError):  # two live: an upgrade was cut short
                with suppress(PrerollError):
                    await self._backend.retire(DOOR_ID)
            return [f"the door (version {version}) could not be upgraded: {error}"]
        self._services.record("door_upgraded", data={"from": version, "to": __version__})
        return []

    @property
    def _argv_file(self) -> Path:
        """What runs now: the specification tells what was started first, before any upgrade."""
        return self._services.state.holder(DOOR_ID) / "argv.json"

    def _remember_argv(self) -> None:
        with suppress(OSError):
            write_json(self._argv_file, list(self._argv()))

    def _argv(self) -> tuple[str, ...]:
        serve = self._app.serve
        argv = [program("preroll-door")]
        argv += ["--tables", str(self._services.state.tables)]
        if serve.admin is not None:
            argv += ["--admin-tcp", serve.admin]
            if serve.admin_token is not None:
                argv += ["--admin-token-file", str(self._token_file(serve.admin_token))]
        if serve.access_log is not None:
            path = self._app.directory / serve.access_log.file
            argv += ["--access-log", str(path), "--access-sample", str(serve.access_log.sample)]
        if serve.tls is not None:
            for flag, name in (("--tls-cert", serve.tls.cert), ("--tls-key", serve.tls.key)):
                argv += [flag, str(self._app.directory / name)]
        return tuple(argv)

    def _token_file(self, reference: str) -> Any:
        """The token in a file that only this user reads: arguments are seen by everybody."""
        path = self._services.state.root / "admin-token"
        path.touch(mode=0o600)
        path.write_text(resolve_secret(reference, self._app.directory))
        return path

    async def _answering(self) -> None:
        deadline = self._services.now_s() + START_TIMEOUT_S
        restarts = (await self._backend.status(DOOR_ID)).restarts
        while True:
            try:
                await self._services.blocking(self._services.door.health)
                return
            except UnavailableError as error:
                await self._raise_if_ended(error, restarts)
                if self._services.now_s() > deadline:
                    raise
            await asyncio.sleep(0.005)

    async def _raise_if_ended(self, error: UnavailableError, restarts: int) -> None:
        """A door that ends at once has been given something it refuses: its own words say what.

        `restarts`: how many it had before; an adopted one may have been killed any number of times.
        """
        status = await self._backend.status(DOOR_ID)
        if status.restarts < restarts + 3 and not status.has_exited:
            return
        since = max(0, status.lines - 5)
        lines = [line.text async for line in self._backend.lines(DOOR_ID, since)]
        raise InputError("the door does not start: " + ("\n".join(lines) or str(error)))


def is_same(listening: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a door listens where the app file says; port 0 is any port of that host."""
    if len(listening) != len(wanted):
        return False
    pairs = zip(sorted(listening), sorted(wanted), strict=True)
    return all(
        one == other or (other.endswith(":0") and one.startswith(other[:-1]))
        for one, other in pairs
    )
