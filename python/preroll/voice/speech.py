"""`POST /v1/audio/speech`: text in, speech out as it is made.

Two numbers, always: the time to the first byte, and to the first sample that anyone can hear.
"""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from preroll.voice.encode import FORMATS, Encoder, get_encoder
from preroll.voice.gauges import Gauges
from preroll.voice.models import Models
from preroll.voice.pcm import SPEECH_RATE_HZ, Samples
from preroll.voice.saying import Saying, one_text
from preroll.voice.speakable import Cleaner
from preroll.voice.speaker import MAX_SPEED, MIN_SPEED
from preroll.voice.trim import FirstAudible
from preroll.worker.answer import Response
from preroll.worker.errors import RequestError

STREAMS = ("audio", "sse")
BLOCK_S = 0.1
"""The audio of one chunk: a listener that leaves costs no more than that."""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    text: str
    response_format: str
    speed: float
    is_events: bool

    @classmethod
    def of(cls, body: dict[str, Any], max_chars: int) -> SpeechRequest:
        """Raises RequestError (400) that names the field."""
        text = body.get("input")
        if not isinstance(text, str):
            raise _wrong("input", text, "text")
        if len(text) > max_chars:
            raise _wrong(
                "input",
                f"{len(text)} characters",
                f"at most {max_chars}; send it in parts, or raise max_input_chars in the app file",
            )
        if not Cleaner().clean(text):
            raise _wrong("input", text[:40], "text with at least one letter or digit to say")
        form = body.get("response_format", "mp3")
        if form not in FORMATS:
            raise _wrong("response_format", form, ", ".join(FORMATS))
        speed = body.get("speed", 1.0)
        if isinstance(speed, bool) or not isinstance(speed, int | float):
            raise _wrong("speed", speed, "a number")
        if not MIN_SPEED <= speed <= MAX_SPEED:
            raise _wrong("speed", speed, f"{MIN_SPEED} to {MAX_SPEED}")
        stream = body.get("stream_format", "audio")
        if stream not in STREAMS:
            raise _wrong("stream_format", stream, ", ".join(STREAMS))
        return cls(text, form, float(speed), stream == "sse")


def _wrong(name: str, value: object, allowed: str) -> RequestError:
    message = f"{name} is {value!r}; allowed: {allowed}"
    return RequestError(message, status=400, kind="invalid_request", param=name)


async def speak(
    request: SpeechRequest, models: Models, gauges: Gauges, began_s: float
) -> AsyncIterator[Any]:
    """The chunks of the answer; the first is its head. Raises RequestError (400) when no voice
    can say any of it."""
    encoder = get_encoder(request.response_format)
    saying = Saying(models, request.speed)
    audible = FirstAudible(SPEECH_RATE_HZ)
    is_begun = False
    num_samples = 0
    pieces = saying.pieces(one_text(request.text))
    try:
        async for piece in pieces:
            for block in _blocks(piece.samples):
                num_samples += block.size
                is_audible = audible.push(block)
                data = encoder.push(block)
                if not is_begun and (data or is_audible):
                    is_begun = True
                    gauges.first_byte.observe(time.monotonic() - began_s)
                    gauges.trimmed.observe(saying.marks.trimmed_ms / 1e3)
                    yield _head(request, encoder, saying)
                if is_audible:
                    gauges.first_audible.observe(time.monotonic() - began_s)
                if data:
                    yield _chunk(request, data)
    finally:
        await pieces.aclose()
        for call in saying.marks.calls:
            gauges.queue_wait("tts").observe(call.queue_s)
            gauges.call("tts").observe(call.total_s)
    if not num_samples:
        raise _wrong("input", request.text[:40], "text that this voice can say")
    if not is_begun:
        yield _head(request, encoder, saying)
    if tail := encoder.finish():
        yield _chunk(request, tail)
    audio_s = num_samples / SPEECH_RATE_HZ
    gauges.realtime_factor.observe(sum(c.total_s for c in saying.marks.calls) / audio_s)
    if request.is_events:
        yield _done(saying, audible, audio_s)


def _head(request: SpeechRequest, encoder: Encoder, saying: Saying) -> Response:
    kind = "text/event-stream" if request.is_events else encoder.media_type
    headers = {"x-preroll-trimmed-ms": f"{saying.marks.trimmed_ms:.0f}"}
    return Response(content_type=kind, headers=headers)


def _chunk(request: SpeechRequest, data: bytes) -> Any:
    if not request.is_events:
        return data
    return {"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()}


def _done(saying: Saying, audible: FirstAudible, audio_s: float) -> dict[str, Any]:
    first = audible.position
    return {
        "type": "speech.audio.done",
        "audio_s": round(audio_s, 3),
        "trimmed_ms": round(saying.marks.trimmed_ms),
        "first_audible_ms": None if first is None else round(1e3 * first / SPEECH_RATE_HZ),
    }


def _blocks(samples: Samples) -> list[Samples]:
    size = round(BLOCK_S * SPEECH_RATE_HZ)
    return [samples[i : i + size] for i in range(0, samples.size, size)]
