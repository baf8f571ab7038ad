"""How far the audio of an answer is made ahead of its listener."""

from __future__ import annotations

import asyncio
import time

from preroll.voice.awaited import Awaited

SHORT_S = 1.0
"""A clause takes about as long to be written and said while others are answered too."""
AMPLE_S = 2.0


class Lead:
    """Of one answer, which is played from its first sample on. It is awaited while its listener
    has nothing to hear, or is about to; it stands back for others while there is plenty."""

    def __init__(self, awaited: Awaited) -> None:
        self._awaited = awaited
        self._plays_until_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_short(self) -> bool:
        return self._left_s() < SHORT_S

    def begin(self) -> None:
        self._awaited.begin(self)

    async def make_room(self) -> None:
        """Before more is made."""
        self._look()
        if not self.is_short:
            await self._awaited.stand_back(self._left_s() - AMPLE_S)

    def made(self, seconds: float) -> None:
        """Of audio. The listener has waited for what came too late."""
        self._plays_until_s = time.monotonic() + max(0.0, self._left_s()) + seconds
        self._look()

    def _look(self) -> None:
        """Is it awaited, and if not, when will it be?"""
        if self.is_short:
            self.begin()
            return
        self.end()
        in_s = self._left_s() - SHORT_S
        self._timer = asyncio.get_running_loop().call_later(in_s, self.begin)

    def end(self) -> None:
        """Nobody waits for more: all of it is made, or what is made is not taken."""
        if self._timer is not None:
            self._timer.cancel()
        self._awaited.end(self)

    def _left_s(self) -> float:
        return 0.0 if self._plays_until_s is None else self._plays_until_s - time.monotonic()
