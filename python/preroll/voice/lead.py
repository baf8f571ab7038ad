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
        if self.is_short:
            self.begin()
        else:
            await self._awaited.stand_back(self._left_s() - AMPLE_S)

    def made(self, seconds: float) -> None:
        """Of audio. The listener has waited for what came too late."""
        left_s = max(0.0, self._left_s()) + seconds
        self.end()
        self._plays_until_s = time.monotonic() + left_s
        if left_s < SHORT_S:
            self.begin()
        else:
            self._timer = asyncio.get_running_loop().call_later(left_s - SHORT_S, self.begin)

    def end(self) -> None:
        """Nobody waits for more: all of it is made, or what is made is not taken."""
        if self._timer is not None:
            self._timer.cancel()
        self._awaited.end(self)

    def _left_s(self) -> float:
        return 0.0 if self._plays_until_s is None else self._plays_until_s - time.monotonic()
