"""An answer that is being made, decided or not.

In a pause that may end the turn an answer is begun on what was understood so far (preemptive
generation) and kept back. The turn's end finds it made in part; speech that goes on throws it away.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from preroll.voice import turns
from preroll.voice.answering import Answer
from preroll.voice.history import History


@dataclass(slots=True)
class Begun:
    """`history`: the conversation with the words that are answered. `voiced_until_s`: the end of
    the speech that they rest on, in the stream. `waits_for`: what has to be over before it runs."""

    action: turns.Answer
    answer: Answer
    history: History
    voiced_until_s: float
    since_s: float
    """When the words were there (time.monotonic)."""
    waits_for: asyncio.Task[None] | None = None
    work: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.work = asyncio.create_task(self._run())
        self.work.add_done_callback(_seen)

    async def _run(self) -> None:
        if self.waits_for is not None:
            await asyncio.wait([self.waits_for])
        await self.answer.run()

    def fits(self, action: turns.Answer) -> bool:
        """Whether it is the answer to that; one that failed early is better begun anew."""
        return self.action == action and not self.work.done()


def _seen(work: asyncio.Task[None]) -> None:
    """The failure of an answer that nobody waits for is no news."""
    if not work.cancelled():
        work.exception()
