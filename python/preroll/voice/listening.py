"""Runs the jobs of a live transcript, the next as soon as one is due.

One at a time, and another one beside it where that takes nothing from anybody: a word must be in
two transcripts, so how often there is one decides how late it is final.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from preroll.voice.activity import Edge
from preroll.voice.agreement import plain
from preroll.voice.arrivals import Arrivals
from preroll.voice.gauges import Gauges
from preroll.voice.hearing import Ear
from preroll.voice.live import Job, LiveTranscript, Update
from preroll.voice.models import Call, ModelError, Models
from preroll.voice.pcm import Samples
from preroll.voice.utterance import Hypothesis

ATTEMPTS = 3
"""For one job: a stage that was killed is back after the second."""
AGAIN_AFTER_S = 0.25
STAND_BACK_S = 1.0
"""How long words that are only shown wait for those who wait in silence."""
LOOK_AGAIN_S = 0.1
"""Whether they still do."""
MOST_WAITING_S = 60.0
"""Of audio that no transcript has seen: beyond it the client is made to wait."""

Heard = Callable[[Update, float | None], Awaitable[None]]
Failed = Callable[[ModelError], Awaitable[None]]


class Listener:
    """`heard(update, lag_ms)` is awaited for each update, `failed` once for a job that failed.

    `lag_ms`: from the last sample that the update's words rest on until now; None without words.
    """

    def __init__(
        self, live: LiveTranscript, models: Models, gauges: Gauges, heard: Heard, failed: Failed
    ) -> None:
        self.live = live
        self.arrivals = Arrivals()
        self.calls: list[Call] = []
        """Of the utterance that is being transcribed."""
        self._models = models
        self._gauges = gauges
        self._heard = heard
        self._failed = failed
        self._changed = asyncio.Event()
        self._progressed = asyncio.Event()
        self._idle = asyncio.Event()
        self._running: dict[asyncio.Task[Hypothesis | None], Job] = {}
        self._began_s = 0.0
        """When the last transcript was begun (time.monotonic)."""
        self._spoken_s = 0.0
        """When somebody began to speak."""
        self._error: Exception | None = None
        self._idle.set()

    def accept(self, ear: Ear, data: bytes) -> list[Edge]:
        """Takes what the client sent; the processor time of this thread for it is counted."""
        began_s = time.thread_time()
        edges = self.push(ear.push(data))
        self._gauges.accept.observe(time.thread_time() - began_s)
        return edges

    def push(self, samples: Samples) -> list[Edge]:
        """Takes samples, at a cost far below a millisecond for 20 of them."""
        edges = self.live.push(samples)
        if any(edge.kind == "start" for edge in edges):
            self._spoken_s = time.monotonic()
        self.arrivals.note(self.live.now_s)
        if self.live.utterances:
            self._idle.clear()
            self._changed.set()
        return edges

    async def room(self) -> None:
        """Waits while too much audio waits for its transcript."""
        while sum(u.window_s for u in self.live.utterances) > MOST_WAITING_S:
            self._progressed.clear()
            await self._progressed.wait()
            self._check()

    def finish(self) -> list[Edge]:
        """Closes what is being said; its last words come as an update."""
        edges = self.live.finish()
        if self.live.utterances:
            self._idle.clear()
            self._changed.set()
        return edges

    async def drain(self) -> None:
        """Waits until everything that was said has been told. After `finish`."""
        await self._idle.wait()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def run(self) -> None:
        """Until cancelled. What it raises, those that wait for it raise too."""
        try:
            await self._run()
        except Exception as error:
            self._error = error
            self._idle.set()
            self._progressed.set()
            raise

    async def _run(self) -> None:
        try:
            while True:
                self._changed.clear()
                for task in [task for task in self._running if task.done()]:
                    await self._take(task)
                self._begin()
                await self._tell(self.live.settle())
                if not self.live.utterances:
                    self._idle.set()
                await self._wait()
        finally:
            for task in self._running:
                task.cancel()

    async def _wait(self) -> None:
        """Until something has changed, here or for those that this one stands back for."""
        is_held = bool(self.live.utterances and self._models.awaited)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S if is_held else None):
                await self._changed.wait()

    def _begin(self) -> None:
        while True:
            running = list(self._running.values())
            has_turn = not running or self._models.is_free(len(running))
            # An end is not made to wait for words before it: they are in it too.
            may_overtake = len(running) <= 1 and self._models.may_overtake
            if not has_turn and not may_overtake:
                return
            ends_only = not has_turn or self._stands_back()
            job = self.live.next_job(running, ends_only=ends_only)
            if job is None:
                return
            self._began_s = time.monotonic()
            task = asyncio.create_task(self._recognize(job, is_second=bool(running)))
            task.add_done_callback(lambda _: self._changed.set())
            self._running[task] = job

    def _stands_back(self) -> bool:
        """Whether words that are only shown wait, since somebody else waits in silence."""
        since_s = max(self._began_s, self._spoken_s)
        return bool(self._models.awaited) and time.monotonic() < since_s + STAND_BACK_S

    async def _take(self, task: asyncio.Task[Hypothesis | None]) -> None:
        job = self._running.pop(task)
        try:
            heard = task.result()
        except ModelError:
            # Another one has its audio; or it is due again, and what fails then is told.
            return
        await self._tell(self.live.give_up(job) if heard is None else self.live.apply(job, heard))
        self._progressed.set()

    async def _recognize(self, job: Job, *, is_second: bool) -> Hypothesis | None:
        if not job.is_end:
            return await self._attempts(job, is_second=is_second)
        with self._models.awaited.while_in(job):
            return await self._attempts(job, is_second=is_second)

    async def _attempts(self, job: Job, *, is_second: bool) -> Hypothesis | None:
        for attempt in range(ATTEMPTS):
            try:
                overtakes = is_second or job.is_end
                heard, call = await self._models.recognize(job, overtakes=overtakes)
            except ModelError as error:
                self._gauges.errors("stt").value += 1
                if is_second or self._is_overtaken(job):
                    raise
                if attempt == 0:
                    await self._failed(error)
                await asyncio.sleep(AGAIN_AFTER_S * 2**attempt)
                if self._is_overtaken(job):
                    raise
                continue
            self._gauges.queue_wait("stt").observe(call.queue_s)
            self._gauges.call("stt").observe(call.total_s)
            self.calls.append(call)
            return heard
        return None

    def _is_overtaken(self, job: Job) -> bool:
        """Whether a later transcript, of its words too, is there or being made."""
        utterances = self.live.utterances
        mine = next((one for one in utterances if one.number == job.utterance), None)
        if mine is None or mine.heard_until_s >= job.until_s:
            return True
        others = (other for other in self._running.values() if other.utterance == job.utterance)
        return any(other.until_s > job.until_s for other in others)

    async def _tell(self, updates: list[Update]) -> None:
        for update in updates:
            lag_ms = None
            words = [word for word in update.words if plain(word.text)]
            if words:
                lag_ms = self.arrivals.since_ms(words[-1].end_s)
            if update.kind == "final":
                for word in words:
                    word_lag_ms = self.arrivals.since_ms(word.end_s)
                    self._gauges.partial_lag.observe((word_lag_ms or 0.0) / 1e3)
            await self._heard(update, lag_ms)
            if update.is_end:
                self.calls.clear()
