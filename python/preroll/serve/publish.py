"""Keeps the door's tables equal to what control knows: file first, then `PUT /tables`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preroll.errors import PrerollError, UnavailableError
from preroll.serve.http import request
from preroll.serve.statedir import read_json, write_json

RETRY_S = 0.2

_logger = logging.getLogger("preroll.serve")


class Publisher:
    """One task publishes; callers mark what they changed and may wait until it is in force."""

    def __init__(
        self,
        path: Path,
        admin: str,
        build: Callable[[int], dict[str, Any]],
        after: Callable[[], None],
    ) -> None:
        """`build(version)` gives the whole tables; `after` runs after each publication."""
        self._path = path
        self._admin = admin
        self._build = build
        self._after = after
        self._version = int((read_json(path) or {}).get("version", 0))
        self._changed = asyncio.Event()
        self._in_force: dict[str, Any] = {}
        self._round = 0
        self._busy = False
        self._published = asyncio.Condition()
        self.problem: str | None = None

    def changed(self) -> None:
        """The tables may be different now; publishes them soon if they are."""
        self._changed.set()

    def renew(self) -> None:
        """Another door than before: what it read from the disk may be old. Publishes to it."""
        self._in_force = {}
        self._changed.set()

    async def published(self) -> None:
        """Returns when a table built after this call is in force."""
        async with self._published:
            target = self._round + (2 if self._busy else 1)
            self._changed.set()
            await self._published.wait_for(lambda: self._round >= target)

    async def published_once(self) -> None:
        """Returns after the next publication, whatever its cause."""
        async with self._published:
            await self._published.wait()

    def write_first(self) -> None:
        """Writes the file that the door starts with. Raises OSError."""
        self._version += 1
        write_json(self._path, self._build(self._version))

    async def run(self) -> None:
        """Publishes for ever; a door or disk that refuses is tried again."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._busy = True
            try:
                await self._publish()
            except PrerollError as error:
                self._failed(str(error))
                self._changed.set()
                await asyncio.sleep(RETRY_S)
                continue
            finally:
                self._busy = False
            async with self._published:
                self._round += 1
                self._published.notify_all()
            self._after()

    async def _publish(self) -> None:
        tables = self._build(0)
        if tables == self._in_force:
            return
        self._version += 1
        await asyncio.to_thread(self._send, {**tables, "version": self._version})
        self._in_force = tables
        self.problem = None

    def _send(self, tables: dict[str, Any]) -> None:
        try:
            write_json(self._path, tables, sync=True)
        except OSError as error:
            # The door gets its tables all the same; only its restart would see older ones.
            self._failed(f"{self._path}: {error.strerror or error}")
        body = json.dumps(tables).encode()
        response = request(self._admin, "PUT", "/tables", body=body, timeout_s=10.0)
        if response.status == 409:
            state = request(self._admin, "GET", "/healthz").json()
            self._version = max(self._version, int(state["tables_version"]))
            raise UnavailableError("the door has newer tables; publishing again")
        if response.status != 200:
            said = response.body[:500].decode(errors="replace")
            raise UnavailableError(f"the door refused its tables: {response.status} {said}")

    def _failed(self, message: str) -> None:
        if message != self.problem:
            _logger.warning("%s", message)
        self.problem = message
