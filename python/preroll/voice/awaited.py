"""Who waits in silence: for the end of a transcript, and then for the first sound of an answer.

What is made ahead stands back for them, for a while: words that are only shown while their speaker
goes on, clauses behind those that are being played.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MOST_S = 5.0
"""Who waits longer waits for something else: a stage that hangs, a client that does not read."""


class Awaited:
    """Of one service, whatever the session. True while anybody waits."""

    def __init__(self) -> None:
        self._waiting: dict[object, float] = {}
        """Since when (time.monotonic)."""
        self._nobody = asyncio.Event()
        self._nobody.set()

    def __bool__(self) -> bool:
        now_s = time.monotonic()
        return any(now_s < since_s + MOST_S for since_s in self._waiting.values())

    def begin(self, one: object) -> None:
        """Nothing happens if it has begun already."""
        self._waiting.setdefault(one, time.monotonic())
        self._nobody.clear()

    def end(self, one: object) -> None:
        """Nothing happens if it has ended already."""
        self._waiting.pop(one, None)
        if not self._waiting:
            self._nobody.set()

    @contextmanager
    def while_in(self, one: object) -> Iterator[None]:
        self.begin(one)
        try:
            yield
        finally:
            self.end(one)

    async def stand_back(self, most_s: float) -> None:
        """Returns when nobody waits any more, and after `most_s` at the latest."""
        if most_s <= 0.0 or not self:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(most_s, MOST_S)):
                await self._nobody.wait()
