"""Sends the audio of an answer at the pace at which it is played, a little ahead.

Ahead, so that a network's hiccup is not heard; only a little, because an interruption throws away
what was sent, and what the listener heard of it has to be told from the time that went by.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from preroll.voice.history import Piece
from preroll.voice.pcm import to_s16le
from preroll.voice.saying import Spoken
from preroll.voice.trim import FirstAudible

FRAME_S = 0.04


@dataclass(slots=True)
class Player:
    """The audio of one answer on its way to a client. Times are of time.monotonic.

    Nothing is sent before `wanted`: an answer may be made before it is sure that it is one.
    """

    send: Callable[[bytes], Awaitable[None]]
    rate_hz: int
    lead_s: float
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    pieces: list[Piece] = field(default_factory=list)
    sent_s: float = 0.0
    underruns: int = 0
    first_byte_s: float | None = None
    first_audible_s: float | None = None
    _plays_from_s: float = 0.0
    """When playing began, moved on by every pause in which there was nothing to play."""

    async def play(self, spoken: AsyncIterator[Spoken]) -> None:
        """Returns when the last frame was sent."""
        audible = FirstAudible(self.rate_hz)
        size = round(FRAME_S * self.rate_hz)
        async for piece in spoken:
            await self.wanted.wait()
            self.pieces.append(Piece(piece.text, piece.audio_s))
            for i in range(0, piece.samples.size, size):
                frame = piece.samples[i : i + size]
                await self._pace()
                is_audible = audible.push(frame)
                await self.send(to_s16le(frame))
                self.sent_s += frame.size / self.rate_hz
                if is_audible:
                    self.first_audible_s = time.monotonic()

    async def _pace(self) -> None:
        now_s = time.monotonic()
        if self.first_byte_s is None:
            self.first_byte_s = self._plays_from_s = now_s
            return
        late_s = now_s - self._plays_from_s - self.sent_s
        if late_s > 0.0:
            self.underruns += 1
            self._plays_from_s += late_s
        elif -late_s > self.lead_s:
            await asyncio.sleep(-late_s - self.lead_s)

    async def finish(self) -> None:
        """Waits until what was sent has been played."""
        left_s = self.sent_s - self.played_s()
        if left_s > 0.0:
            await asyncio.sleep(left_s)

    def played_s(self) -> float:
        """How much was played at most: what was sent, and no more than time went by."""
        if self.first_byte_s is None:
            return 0.0
        return max(0.0, min(self.sent_s, time.monotonic() - self._plays_from_s))

    def heard_s(self, mark_s: float | None) -> float:
        """How much the listener heard: its own word for it, if that can be true."""
        return self.played_s() if mark_s is None else min(max(0.0, mark_s), self.sent_s)
