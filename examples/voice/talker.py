"""A client that talks at the pace of real time: what it says, what it hears, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError

from preroll.voice.pcm import HEARING_RATE_HZ, Samples, to_s16le

CHUNK_S = 0.02
CHUNK_BYTES = 2 * round(CHUNK_S * HEARING_RATE_HZ)


@dataclass(slots=True)
class Received:
    """`at_s` of time.monotonic; binary messages have no `message`."""

    at_s: float
    message: dict[str, Any]
    audio: bytes = b""


@dataclass
class Talker:
    """One session of `/v1/talk` or of the live transcription; use `async with`."""

    url: str
    received: list[Received] = field(default_factory=list)

    async def __aenter__(self) -> Talker:
        self._socket: ClientConnection = await connect(
            self.url, compression=None, max_size=None, ping_interval=None
        )
        self._changed = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader

    async def _read(self) -> None:
        # A server that is killed says no farewell: its session ends all the same.
        with contextlib.suppress(ConnectionClosedError):
            await self._read_messages()
        async with self._changed:
            closed = {"type": "closed", "code": self._socket.close_code}
            self.received.append(Received(time.monotonic(), closed))
            self._changed.notify_all()

    async def _read_messages(self) -> None:
        async for data in self._socket:
            now_s = time.monotonic()
            got = (
                Received(now_s, {}, data)
                if isinstance(data, bytes)
                else Received(now_s, json.loads(data))
            )
            async with self._changed:
                self.received.append(got)
                self._changed.notify_all()

    async def send(self, message: dict[str, Any] | bytes | str) -> None:
        """An object goes as JSON; text and bytes as they are."""
        await self._socket.send(json.dumps(message) if isinstance(message, dict) else message)

    def stop_reading(self) -> None:
        """As a client that has hung: what is sent to it stays in the network."""
        self._reader.cancel()
        self._socket.transport.pause_reading()

    def vanish(self) -> None:
        """As a client whose machine is gone, without a farewell."""
        self._socket.transport.abort()

    async def wait(self, kind: str, since: int = 0, timeout_s: float = 30.0) -> Received:
        """The first message of a kind after the first `since` messages."""

        def found() -> Received | None:
            return next((r for r in self.received[since:] if r.message.get("type") == kind), None)

        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(found), timeout_s)
        got = found()
        assert got is not None
        return got

    async def speak(self, samples: Samples, until: Callable[[], bool] | None = None) -> float:
        """Says the samples at the pace of real time, then silence until `until()`; returns when
        the last sample of the speech was sent."""
        data = to_s16le(samples)
        began_s = ended_s = time.monotonic()
        number = 0
        while number * CHUNK_BYTES < len(data) or (until is not None and not until()):
            chunk = data[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]
            await self.send(chunk.ljust(CHUNK_BYTES, b"\0"))
            number += 1
            if chunk:
                ended_s = time.monotonic()
            await asyncio.sleep(max(0.0, began_s + number * CHUNK_S - time.monotonic()))
        return ended_s

    def has(self, kind: str, since: int = 0) -> bool:
        return any(r.message.get("type") == kind for r in self.received[since:])

    def messages(self, kind: str, since: int = 0) -> list[dict[str, Any]]:
        return [r.message for r in self.received[since:] if r.message.get("type") == kind]

    def audio(self, since: int = 0) -> Samples:
        """All audio that was heard, as the server sent it."""
        data = b"".join(r.audio for r in self.received[since:])
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768.0
