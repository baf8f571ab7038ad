"""HTTP/1.1 to the door's internal socket: pooled connections, answers whole or as they come.

Only what the door speaks, on asyncio's own streams: a stage's Python has no HTTP client that we
could count on.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from preroll.errors import UnavailableError

# The door gives an idle connection up later than this, so that none is found closed when used.
IDLE_S = 5.0
MAX_HEAD_BYTES = 64 << 10
READ_BYTES = 64 << 10

Fields = Sequence[tuple[str, str]]


class BrokenAnswerError(UnavailableError):
    """The answer ended before it was complete; the request may have run."""


@dataclass(frozen=True)
class Answer:
    """What a stage answered; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Connection:
    """One connection; used by one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.idle_since_s = 0.0
        self.is_reusable = True

    @classmethod
    async def open(cls, socket: str) -> Connection:
        try:
            streams = await asyncio.open_unix_connection(socket, limit=MAX_HEAD_BYTES)
        except OSError as error:
            raise UnavailableError(f"the door does not answer at {socket}: {error}") from error
        return cls(*streams)

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self.is_reusable = False
        self._writer.close()

    async def send(self, method: str, path: str, fields: Fields, body: bytes) -> Answer:
        """Sends a request; returns the answer's head."""
        lines = [f"{method} {path} HTTP/1.1", "host: door", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in fields]
        self._writer.write("\r\n".join([*lines, "\r\n"]).encode("latin-1") + body)
        try:
            await self._writer.drain()
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            raise BrokenAnswerError(f"the door closed the connection: {error}") from error
        return self._parse(head)

    def _parse(self, head: bytes) -> Answer:
        first, *lines = head.decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.lower()] = value.strip()
        if "close" in headers.get("connection", ""):
            self.is_reusable = False
        return Answer(int(first.split(" ", 2)[1]), headers)

    async def body(self, head: Answer) -> AsyncIterator[bytes]:
        """The pieces of the body as they come; a chunk of the sender is one piece."""
        try:
            if "chunked" in head.headers.get("transfer-encoding", ""):
                while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    yield (await self._reader.readexactly(size + 2))[:-2]
                while await self._reader.readuntil(b"\r\n") != b"\r\n":
                    pass  # trailers
                return
            left = int(head.headers.get("content-length", "0"))
            while left:
                piece = await self._reader.read(min(left, READ_BYTES))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(piece)
                yield piece
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            self.is_reusable = False
            raise BrokenAnswerError("the answer broke off before its end") from error


class Pool:
    """Idle connections to one socket, the most recently used first.

    Unbounded: a bound would be a queue behind the door's, and a pipeline could wait for itself.
    There are never more connections than calls were under way at once.
    """

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._idle: list[Connection] = []

    async def take(self) -> Connection:
        now_s = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now_s - connection.idle_since_s < IDLE_S:
                return connection
            connection.close()
        return await Connection.open(self.socket)

    def give_back(self, connection: Connection) -> None:
        """Keeps a connection whose answer was read to its end; closes any other."""
        if not connection.is_reusable or not connection.is_open:
            connection.close()
            return
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)
        # The ones that nobody has needed for a while are at the front.
        while self._idle[0].idle_since_s < connection.idle_since_s - IDLE_S:
            self._idle.pop(0).close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
