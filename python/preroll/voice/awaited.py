"""Who waits in silence: for the end of a transcript, and then for the first sound of an answer.

What is made ahead stands back for them, for a while: words that are only shown while their speaker
goes on, clauses behind those that are being played.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Awaited:
    """Of one service, whatever the session. True while anybody waits."""

    def __init__(self) -> None:
        self.since_s = 0.0
        """Since when somebody does, if anybody does (time.monotonic)."""
        self._waiting: set[object] = set()
        self._nobody = asyncio.Event()
        self._nobody.set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(self, one: object) -> None:
        if not self._waiting:
            self.since_s = time.monotonic()
        self._waiting.add(one)
        self._nobody.clear()

    def end(self, one: object) -> None:
        """Nothing happens if it has ended already."""
        self._waiting.discard(one)
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
        try:
            async with asyncio.timeout(max(0.0, most_s)):
                await self._nobody.wait()
        except TimeoutError:
            pass
