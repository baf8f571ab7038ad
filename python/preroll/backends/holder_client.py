"""The control socket of a holder: one JSON object a line, as docs/protocol.md says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from preroll.backends.base import (
    Exit,
    HolderRefusedError,
    Line,
    Listen,
    ProcessState,
    ProcessStatus,
    Usage,
)
from preroll.backends.holder_program import SPEC_VERSION
from preroll.errors import UnavailableError

CALL_TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 1 << 20
"""A line's text is 16 KiB at most; escaped as JSON it is six times that."""


def parse_status(value: Any) -> ProcessStatus:
    """A holder's status. Raises UnavailableError that names what is missing or of what version."""
    if not isinstance(value, dict) or value.get("version") != SPEC_VERSION:
        version = value.get("version") if isinstance(value, dict) else None
        raise UnavailableError(
            f"the holder speaks version {version!r}, this preroll {SPEC_VERSION}: end it with the"
            " preroll that started it"
        )
    try:
        return _status(value)
    except (KeyError, TypeError, ValueError) as error:
        raise UnavailableError(f"a holder's status is not readable: {error!r}") from error


def _status(value: dict[str, Any]) -> ProcessStatus:
    tree, ended = value.get("tree"), value.get("exit")
    return ProcessStatus(
        id=value["id"],
        state=ProcessState(value["state"]),
        pid=value["pid"],
        boot_id=value["boot_id"],
        owner_pid=value["holder_pid"],
        generation=value["generation"],
        restarts=value.get("restarts", 0),
        spawned_ns=value["spawned_ns"],
        exited_ns=value["exited_ns"],
        exit=Exit(ended.get("code"), ended.get("signal")) if ended else None,
        lines=value["lines"],
        last_line_ns=value["last_line_ns"],
        listen=tuple(Listen(one["name"], one["address"]) for one in value.get("listen", ())),
        limits_applied=value["limits_applied"],
        oom_kills=value["oom_kills"],
        is_forked=value.get("forked", False),
        log_dropped_lines=value.get("log_dropped_lines", 0),
        log_error=value.get("log_error"),
        usage=Usage(tree["processes"], tree["rss_bytes"], tree["cpu_ns"]) if tree else None,
        error=value["error"],
    )


class HolderClient:
    """Talks to the holder at `socket`; every call has its own connection and a time-out.

    Raises UnavailableError when the holder does not answer, HolderRefusedError when it says no.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._name = socket.stem

    async def status(self, timeout_s: float = CALL_TIMEOUT_S) -> ProcessStatus:
        return parse_status(await self.raw_status(timeout_s))

    async def raw_status(self, timeout_s: float = CALL_TIMEOUT_S) -> dict[str, Any]:
        """The status as the holder sent it, of whatever version."""
        reply: dict[str, Any] = (await self.call({"op": "status"}, timeout_s))["status"]
        return reply

    async def ended(self, request: dict[str, Any], timeout_s: float | None) -> ProcessStatus:
        """Sends a request that is answered when nothing of the tree is left."""
        return parse_status((await self.call(request, timeout_s))["status"])

    async def call(
        self, request: dict[str, Any], timeout_s: float | None = CALL_TIMEOUT_S
    ) -> dict[str, Any]:
        async with self._connection(timeout_s) as (reader, writer):
            writer.write(json.dumps(request).encode() + b"\n")
            return await self._reply(reader)

    async def lines(self, since: int, *, follow: bool) -> AsyncIterator[Line]:
        """Lines after number `since`; with `follow` until the process's end."""
        async with self._connection(None if follow else CALL_TIMEOUT_S) as (reader, writer):
            request = {"op": "lines", "since": since, "follow": follow}
            writer.write(json.dumps(request).encode() + b"\n")
            while "ok" not in (reply := await self._reply(reader)):
                yield Line(
                    reply["n"], reply["t_ns"], reply["stream"], reply["text"], reply["partial"]
                )

    @asynccontextmanager
    async def _connection(
        self, timeout_s: float | None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """The time-out bounds the whole use; a holder's accept is never waited for longer."""
        writer = None
        try:
            async with asyncio.timeout(timeout_s):
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    reader, writer = await asyncio.open_unix_connection(
                        self.socket, limit=MAX_REPLY_BYTES
                    )
                yield reader, writer
        except TimeoutError as error:
            raise UnavailableError(
                f"holder {self._name} did not answer within {timeout_s or CALL_TIMEOUT_S:g} s"
            ) from error
        except OSError as error:
            raise UnavailableError(f"holder {self._name} does not answer: {error}") from error
        finally:
            if writer is not None:
                writer.close()

    async def _reply(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        try:
            line = await reader.readline()
        except ValueError as error:
            raise UnavailableError(f"holder {self._name}: reply too long: {error}") from error
        if not line.endswith(b"\n"):
            raise UnavailableError(f"holder {self._name} closed the connection")
        reply: dict[str, Any] = json.loads(line)
        if reply.get("ok") is False:
            raise HolderRefusedError(f"holder {self._name}: {reply.get('error')}")
        return reply
