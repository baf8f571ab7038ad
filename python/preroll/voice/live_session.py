"""`WebSocket /v1/audio/transcriptions/stream`: audio in, words out while they are spoken.

Client: audio, `{"type": "flush"}` (tell what was said so far), `{"type": "end"}`.
Server: `ready`, `speech_started`, `speech_stopped`, `partial`, `final`, `flushed`, `done`, `error`.
The texts of all `final` messages, joined as they are, are the transcript.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from preroll.errors import InputError
from preroll.voice import wire
from preroll.voice.activity import Edge
from preroll.voice.gauges import Gauges
from preroll.voice.hearing import Ear
from preroll.voice.listening import Listener
from preroll.voice.live import LiveTranscript, Update
from preroll.voice.models import ModelError, Models
from preroll.voice.patience import Patience
from preroll.voice.silero import Silero
from preroll.worker.session import Session

COMMANDS = ("flush", "end")


class LiveSession:
    """One session, from its first message to `done`."""

    def __init__(
        self, socket: Session, settings: wire.SessionSettings, models: Models, gauges: Gauges
    ) -> None:
        self._socket = socket
        self._ear = Ear(settings)
        live = LiveTranscript(Silero().push, activity=settings.activity)
        self._listener = Listener(live, models, gauges, self._heard, self._failed)
        self._text: list[str] = []
        self._patience = Patience(socket)

    async def run(self) -> None:
        await self._socket.send({"type": "ready"})
        worker = asyncio.create_task(self._listener.run())
        try:
            async for message in self._socket:
                if not await self._take(message):
                    break
            # A client that has only gone away is told nothing more; one that said "end" is.
        finally:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await worker

    async def _take(self, message: str | bytes) -> bool:
        """Whether the session goes on."""
        try:
            said = wire.parse(message, COMMANDS)
        except InputError as error:
            return await self._patience.answer(error)
        if isinstance(said, bytes):
            await self._tell(self._listener.accept(self._ear, said))
            await self._listener.room()
            return True
        if said.kind == "end":
            await self._tell(self._listener.push(self._ear.finish()))
        await self._tell(self._listener.finish())
        await self._listener.drain()
        if said.kind == "flush":
            await self._socket.send({"type": "flushed"})
            return True
        await self._socket.send(
            {
                "type": "done",
                "text": "".join(self._text).strip(),
                "duration_ms": round(1e3 * self._listener.live.now_s),
            }
        )
        await self._socket.close()
        return False

    async def _tell(self, edges: list[Edge]) -> None:
        for edge in edges:
            kind = "speech_started" if edge.kind == "start" else "speech_stopped"
            await self._socket.send({"type": kind, "at_ms": round(1e3 * edge.at_s)})

    async def _heard(self, update: Update, lag_ms: float | None) -> None:
        if update.kind == "final":
            self._text.append(update.text)
        await self._socket.send(update_message(update, lag_ms))

    async def _failed(self, error: ModelError) -> None:
        await self._socket.send(wire.error(str(error), "stage_failed", error.stage))


def update_message(update: Update, lag_ms: float | None) -> dict[str, Any]:
    """`start_ms`, `end_ms`: where the words are in the stream; `lag_ms`: since the last of them."""
    message: dict[str, Any] = {
        "type": update.kind,
        "utterance": update.utterance,
        "text": update.text,
        "is_end": update.is_end,
    }
    if update.words:
        message["start_ms"] = round(1e3 * update.words[0].start_s)
        message["end_ms"] = round(1e3 * update.words[-1].end_s)
    if lag_ms is not None:
        message["lag_ms"] = round(lag_ms)
    return message
