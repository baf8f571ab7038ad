"""Text that is being written to speech that can be played, one clause ahead of the listener.

text ─▶ clauses ─▶ cleaned ─▶ synthesis (one ahead) ─▶ trim (front only) ─▶ one rate
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field

import numpy as np

from preroll.voice.clauses import ClauseSplitter
from preroll.voice.lead import Lead
from preroll.voice.models import Call, Models, Said
from preroll.voice.pcm import SPEECH_RATE_HZ, Samples
from preroll.voice.resample import Resampler
from preroll.voice.speakable import Cleaner
from preroll.voice.trim import LeadingTrim

AHEAD = 3
"""Clauses whose audio is made, or being made, before it is wanted; an interruption throws it
away."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A piece of text as it was written, and audio at the rate that was asked for.

    The text comes with the first part of its audio. `audio_s`: how long all of the text takes, as
    far as it is known then; what follows without a text corrects it.
    """

    text: str
    samples: Samples
    audio_s: float


class _End:
    """Behind the last part of a clause."""


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
        self._room = asyncio.Semaphore(AHEAD)
        self._lead = Lead(models.awaited)

    async def pieces(self, texts: AsyncIterator[str]) -> AsyncGenerator[Spoken, None]:
        """Raises ModelError, from the language model or the synthesis."""
        # The text is read as fast as it is written, so that its writer's slot is soon free.
        clauses: asyncio.Queue[_Clause | BaseException | None] = asyncio.Queue()
        audio: asyncio.Queue[Spoken | BaseException | type[_End] | None] = asyncio.Queue()
        self._lead.begin()
        tasks = [
            asyncio.create_task(self._read(texts, clauses)),
            asyncio.create_task(self._synthesize(clauses, audio)),
        ]
        try:
            while (piece := await audio.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                if isinstance(piece, Spoken):
                    yield piece
                else:
                    self._room.release()
        finally:
            self._lead.end()
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
        out: asyncio.Queue[Spoken | BaseException | type[_End] | None],
    ) -> None:
        silent = ""
        try:
            while (clause := await clauses.get()) is not None:
                if isinstance(clause, BaseException):
                    out.put_nowait(clause)
                    return
                # A clause is read from its stage as fast as it is made, so that the stage is soon
                # free; the next one waits until there is room.
                if self._room.locked():
                    self._lead.end()
                await self._room.acquire()
                await self._lead.make_room()
                silent += clause.text
                if clause.spoken and await self._say(clause.spoken, silent, out.put_nowait):
                    silent = ""
                out.put_nowait(_End)
            tail = self._finish()
            if tail.size or silent:
                out.put_nowait(Spoken(silent, tail, tail.size / self._rate_hz))
            out.put_nowait(None)
        except Exception as error:
            out.put_nowait(error)
        finally:
            self._lead.end()

    async def _say(self, spoken: str, text: str, put: Callable[[Spoken], None]) -> bool:
        """Whether there was anything to hear; `text` goes with the first of it."""
        marks = self.marks
        is_first = marks.first_audio_s is None
        if marks.first_clause_s is None:
            marks.first_clause_s = time.monotonic()
        parts = self._models.say(
            spoken, self._speed, marks.calls.append, is_urgent=self._lead.is_short
        )
        told_s = made_s = 0.0
        async with contextlib.aclosing(parts):
            async for said in parts:
                if marks.first_audio_s is None:
                    marks.first_audio_s = time.monotonic()
                samples = self._pass(said)
                if not samples.size:
                    continue
                made_s += samples.size / self._rate_hz
                self._lead.made(samples.size / self._rate_hz)
                audio_s = max(made_s, said.of / said.rate_hz - marks.trimmed_ms / 1e3 * is_first)
                put(Spoken(text, samples, max(0.0, audio_s - told_s)))
                told_s, text = max(told_s, audio_s), ""
        if made_s:  # how long it was foretold to be, and is not
            put(Spoken("", np.zeros(0, np.float32), made_s - told_s))
        return made_s > 0.0

    def _pass(self, said: Said) -> Samples:
        """Without the silence in front, at the rate that was asked for."""
        if self._resampler is None:
            self._resampler = Resampler(said.rate_hz, self._rate_hz)
            self._trim = LeadingTrim(said.rate_hz)
        samples = said.samples
        if self._is_trimming and self._trim is not None:
            samples = self._trim.push(samples)
            self.marks.trimmed_ms = self._trim.trimmed_ms
        return self._resampler.push(samples)

    def _finish(self) -> Samples:
        if self._resampler is None:
            return np.zeros(0, np.float32)
        held = self._trim.finish() if self._is_trimming and self._trim else np.zeros(0, np.float32)
        return np.concatenate([self._resampler.push(held), self._resampler.finish()])


async def one_text(text: str) -> AsyncIterator[str]:
    yield text
