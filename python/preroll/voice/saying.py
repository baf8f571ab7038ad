"""Text that is being written to speech that can be played, one clause ahead of the listener.

text ─▶ clauses ─▶ cleaned ─▶ synthesis (one ahead) ─▶ trim (front only) ─▶ one rate
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

import numpy as np

from preroll.voice.clauses import ClauseSplitter
from preroll.voice.models import Call, Models
from preroll.voice.pcm import SPEECH_RATE_HZ, Samples
from preroll.voice.resample import Resampler
from preroll.voice.speakable import Cleaner
from preroll.voice.trim import LeadingTrim

AHEAD = 2
"""Pieces of audio made before they are wanted; an interruption throws them away."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A piece of text as it was written, and its audio at the rate that was asked for."""

    text: str
    samples: Samples


@dataclass(slots=True)
class SayingMarks:
    """When things happened (time.monotonic), for the first piece; and the calls of all."""

    first_text_s: float | None = None
    first_clause_s: float | None = None
    first_audio_s: float | None = None
    trimmed_ms: float = 0.0
    calls: list[Call] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Clause:
    text: str
    spoken: str


class Saying:
    """One text, said once. Iterate over `pieces()`; leaving early stops everything."""

    def __init__(
        self, models: Models, speed: float = 1.0, rate_hz: int = SPEECH_RATE_HZ, trim: bool = True
    ) -> None:
        self.marks = SayingMarks()
        self._models = models
        self._speed = speed
        self._rate_hz = rate_hz
        self._is_trimming = trim
        self._trim: LeadingTrim | None = None
        self._resampler: Resampler | None = None

    async def pieces(self, texts: AsyncIterator[str]) -> AsyncGenerator[Spoken, None]:
        """Raises ModelError, from the language model or the synthesis."""
        # The text is read as fast as it is written, so that its writer's slot is soon free.
        clauses: asyncio.Queue[_Clause | BaseException | None] = asyncio.Queue()
        audio: asyncio.Queue[Spoken | BaseException | None] = asyncio.Queue(AHEAD)
        tasks = [
            asyncio.create_task(self._read(texts, clauses)),
            asyncio.create_task(self._synthesize(clauses, audio)),
        ]
        try:
            while (piece := await audio.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _read(
        self, texts: AsyncIterator[str], out: asyncio.Queue[_Clause | BaseException | None]
    ) -> None:
        splitter, cleaner = ClauseSplitter(), Cleaner()
        try:
            async for text in texts:
                if self.marks.first_text_s is None:
                    self.marks.first_text_s = time.monotonic()
                for clause in splitter.push(text):
                    out.put_nowait(_Clause(clause, cleaner.clean(clause)))
            for clause in splitter.finish():
                out.put_nowait(_Clause(clause, cleaner.clean(clause)))
            out.put_nowait(None)
        except Exception as error:
            out.put_nowait(error)
        finally:
            if hasattr(texts, "aclose"):
                await texts.aclose()

    async def _synthesize(
        self,
        clauses: asyncio.Queue[_Clause | BaseException | None],
        out: asyncio.Queue[Spoken | BaseException | None],
    ) -> None:
        silent = ""
        try:
            while (clause := await clauses.get()) is not None:
                if isinstance(clause, BaseException):
                    await out.put(clause)
                    return
                samples = await self._say(clause.spoken) if clause.spoken else None
                if samples is None or not samples.size:
                    silent += clause.text
                    continue
                await out.put(Spoken(silent + clause.text, samples))
                silent = ""
            tail = self._finish()
            if tail.size or silent:
                await out.put(Spoken(silent, tail))
            await out.put(None)
        except Exception as error:
            await out.put(error)

    async def _say(self, text: str) -> Samples:
        marks = self.marks
        is_first = marks.first_audio_s is None
        if marks.first_clause_s is None:
            marks.first_clause_s = time.monotonic()
        said = await self._models.say(text, self._speed, is_urgent=is_first)
        marks.calls.append(said.call)
        if said.samples.size and is_first:
            marks.first_audio_s = time.monotonic()
        if self._resampler is None:
            self._resampler = Resampler(said.rate_hz, self._rate_hz)
            self._trim = LeadingTrim(said.rate_hz)
        samples = said.samples
        if self._is_trimming and self._trim is not None:
            samples = self._trim.push(samples)
            marks.trimmed_ms = self._trim.trimmed_ms
        return self._resampler.push(samples)

    def _finish(self) -> Samples:
        if self._resampler is None:
            return np.zeros(0, np.float32)
        held = self._trim.finish() if self._is_trimming and self._trim else np.zeros(0, np.float32)
        return np.concatenate([self._resampler.push(held), self._resampler.finish()])


async def one_text(text: str) -> AsyncIterator[str]:
    yield text
