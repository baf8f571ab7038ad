"""How many requests run in this replica: its own hard limit, whoever sends them."""

from __future__ import annotations

import asyncio
from collections import deque

from preroll.worker.errors import OverloadedError


class Admission:
    """At most `limit` requests hold a place; as many again may wait, in order, for one.

    The door never sends more than `limit`. It counts a request as over when its client leaves,
    though synchronous code may still be at it: that is what the waiting places are for.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.busy = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def check(self) -> None:
        """Raises OverloadedError when a request would find neither a place nor room to wait."""
        if self.busy >= self.limit and len(self._waiters) >= self.limit:
            raise OverloadedError(
                f"{self.busy} requests are in work and {self.waiting} wait; allowed: {self.limit}"
                " each; send again later"
            )

    def try_enter(self) -> bool:
        """Takes a place if one is free."""
        if self.busy >= self.limit:
            return False
        self.busy += 1
        return True

    async def enter(self) -> None:
        """Takes a place, or waits for one."""
        if self.try_enter():
            return
        self.check()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # the place came just as the client left
            else:
                self._waiters.remove(waiter)
            raise

    def leave(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)  # takes over this place
                return
        self.busy -= 1
