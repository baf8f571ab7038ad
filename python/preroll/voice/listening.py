"""Runs the jobs of a live transcript: one at a time, the next as soon as one is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from preroll.voice.activity import Edge
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
        while True:
            self._changed.clear()
            job = self.live.next_job()
            if job is not None:
                await self._do(job)
                continue
            await self._tell(self.live.settle())
            if not self.live.utterances:
                self._idle.set()
            if not self._changed.is_set():
                await self._changed.wait()

    async def _do(self, job: Job) -> None:
        heard = await self._recognize(job)
        updates = self.live.give_up(job) if heard is None else self.live.apply(job, heard)
        await self._tell(updates)
        self._progressed.set()

    async def _recognize(self, job: Job) -> Hypothesis | None:
        for attempt in range(ATTEMPTS):
            try:
                heard, call = await self._models.recognize(job)
            except ModelError as error:
                self._gauges.errors("stt").value += 1
                if attempt == 0:
                    await self._failed(error)
                await asyncio.sleep(AGAIN_AFTER_S * 2**attempt)
                continue
            self._gauges.queue_wait("stt").observe(call.queue_s)
            self._gauges.call("stt").observe(call.total_s)
            self.calls.append(call)
            return heard
        return None

    async def _tell(self, updates: list[Update]) -> None:
        for update in updates:
            lag_ms = None
            if update.words:
                lag_ms = self.arrivals.since_ms(update.words[-1].end_s)
            if update.kind == "final":
                for word in update.words:
                    word_lag_ms = self.arrivals.since_ms(word.end_s)
                    self._gauges.partial_lag.observe((word_lag_ms or 0.0) / 1e3)
            await self._heard(update, lag_ms)
            if update.is_end:
                self.calls.clear()
