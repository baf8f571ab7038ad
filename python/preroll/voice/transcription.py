"""`POST /v1/audio/transcriptions`: a recording in, its words out, however long it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from preroll.voice.agreement import Word, joined
from preroll.voice.decode import decode
from preroll.voice.gauges import Gauges
from preroll.voice.guards import compression, is_believable, without_loops
from preroll.voice.live import Job
from preroll.voice.models import ModelError, Models
from preroll.voice.pcm import HEARING_RATE_HZ
from preroll.voice.segments import Segment, Segmenter
from preroll.voice.silero import Silero
from preroll.voice.utterance import Hypothesis
from preroll.worker.errors import RequestError
from preroll.worker.form import Form

FORMATS = ("json", "text", "verbose_json")
GRANULARITIES = ("word", "segment")
WORK_S = 0.05
"""How long a thread decodes before it looks whether anybody still waits."""


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    data: bytes
    response_format: str
    is_stream: bool
    has_words: bool

    @classmethod
    def of(cls, form: Form) -> TranscriptionRequest:
        """Raises RequestError (400) that names the field."""
        if "file" not in form.files:
            raise _wrong("file", None, "one file of audio")
        response_format = form.get("response_format", "json")
        if response_format not in FORMATS:
            raise _wrong("response_format", response_format, ", ".join(FORMATS))
        is_stream = _flag("stream", form.get("stream", "false"))
        if is_stream and response_format != "json":
            raise _wrong("response_format", response_format, "json, when stream is true")
        asked = form.fields.get("timestamp_granularities[]", [])
        for granularity in asked:
            if granularity not in GRANULARITIES:
                raise _wrong("timestamp_granularities", granularity, ", ".join(GRANULARITIES))
        return cls(form.file("file").data, response_format, is_stream, "word" in asked)


def _flag(name: str, value: str) -> bool:
    if value.lower() in ("true", "1"):
        return True
    if value.lower() in ("false", "0", ""):
        return False
    raise _wrong(name, value, "true, false")


def _wrong(name: str, value: object, allowed: str) -> RequestError:
    message = f"{name} is {value!r}; allowed: {allowed}"
    return RequestError(message, status=400, kind="invalid_request", param=name)


@dataclass(frozen=True, slots=True)
class Heard:
    """A segment with its words, in times of the recording."""

    segment: Segment
    words: tuple[Word, ...]
    hypothesis: Hypothesis

    @property
    def text(self) -> str:
        return joined(self.words)


class Recording:
    """One recording being transcribed; `duration_s` is known once all was read."""

    def __init__(self, data: bytes, models: Models, gauges: Gauges) -> None:
        self.duration_s = 0.0
        self._data = data
        self._models = models
        self._gauges = gauges

    async def heard(self) -> AsyncIterator[Heard]:
        """Segment by segment. Raises InputError for what is no audio, ModelError."""
        loop = asyncio.get_running_loop()
        reader = self._segments()
        while True:
            segments = await loop.run_in_executor(None, _some, reader)
            if segments is None:
                return
            for segment in segments:
                yield await self._recognize(segment)

    def _segments(self) -> Iterator[Segment | None]:
        """In a thread. A None says: nothing yet."""
        segmenter = Segmenter(Silero().push)
        for block in decode(self._data, self._models.settings.max_audio_s):
            self.duration_s += block.size / HEARING_RATE_HZ
            yield from segmenter.push(block)
            yield None
        yield from segmenter.finish()

    async def _recognize(self, segment: Segment) -> Heard:
        job = Job(0, segment.audio, segment.start_s, segment.end_s, (), segment.end_s)
        found, call = await self._models.recognize(job)
        self._gauges.queue_wait("stt").observe(call.queue_s)
        self._gauges.call("stt").observe(call.total_s)
        speech_s = segment.end_s - segment.start_s
        text = joined(found.words).strip()
        if not is_believable(text, speech_s, found.no_speech_prob, found.mean_log_prob):
            return Heard(segment, (), found)
        kept = found.words[: len(without_loops(text).split())]
        at_s = segment.start_s
        words = [replace(w, start_s=w.start_s + at_s, end_s=w.end_s + at_s) for w in kept]
        return Heard(segment, tuple(words), found)


def _some(reader: Iterator[Segment | None]) -> list[Segment] | None:
    """The next segments, or none of them yet after a while; None: that was all."""
    until_s = time.monotonic() + WORK_S
    for segment in reader:
        if segment is not None:
            return [segment]
        if time.monotonic() >= until_s:
            return []
    return None


async def transcribe(request: TranscriptionRequest, models: Models, gauges: Gauges) -> Any:
    """The whole answer. Raises InputError (400)."""
    recording = Recording(request.data, models, gauges)
    heard = [one async for one in recording.heard()]
    text = "".join(one.text for one in heard).strip()
    if request.response_format == "text":
        return text + "\n"
    if request.response_format == "json":
        return {"text": text}
    return _verbose(request, recording, heard, text)


async def transcribe_events(
    request: TranscriptionRequest, models: Models, gauges: Gauges
) -> AsyncIterator[Any]:
    """The answer segment by segment, as server-sent events."""
    texts: list[str] = []
    async for heard in Recording(request.data, models, gauges).heard():
        delta = heard.text if texts else heard.text.lstrip()
        if delta:
            texts.append(delta)
            yield {"type": "transcript.text.delta", "delta": delta}
    yield {"type": "transcript.text.done", "text": "".join(texts)}


def _verbose(
    request: TranscriptionRequest, recording: Recording, heard: list[Heard], text: str
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "task": "transcribe",
        "language": "english",
        "duration": round(recording.duration_s, 3),
        "text": text,
        "segments": [_segment(i, one) for i, one in enumerate(h for h in heard if h.words)],
    }
    if request.has_words:
        answer["words"] = [
            {"word": w.text.strip(), "start": round(w.start_s, 2), "end": round(w.end_s, 2)}
            for one in heard
            for w in one.words
        ]
    return answer


def _segment(number: int, heard: Heard) -> dict[str, Any]:
    return {
        "id": number,
        "seek": 0,
        "start": round(heard.segment.start_s, 2),
        "end": round(heard.segment.end_s, 2),
        "text": heard.text,
        "tokens": [i for word in heard.words for i in word.token_ids],
        "temperature": 0.0,
        "avg_logprob": heard.hypothesis.mean_log_prob,
        "compression_ratio": compression(heard.text),
        "no_speech_prob": heard.hypothesis.no_speech_prob,
    }


__all__ = ["ModelError", "TranscriptionRequest", "transcribe", "transcribe_events"]
