"""The messages of both WebSockets: what a client may say, checked, and what it is told.

Audio is a binary message of samples in the declared format, or `{"type": "audio", "data": BASE64}`
for clients that have only text. Everything else is a JSON object with a `type`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from preroll.errors import InputError
from preroll.voice.activity import ActivitySettings
from preroll.voice.pcm import FORMATS, HEARING_RATE_HZ, SPEECH_RATE_HZ, check_rate
from preroll.voice.speaker import MAX_SPEED, MIN_SPEED

MAX_INSTRUCTIONS = 4_000
MAX_ERRORS = 20
"""Messages of garbage after which a session is closed."""

LISTEN_PARAMETERS = ("rate", "format", "channels", "silence_ms")
TALK_PARAMETERS = (*LISTEN_PARAMETERS, "output_rate", "speed")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Of one session, from its query; nothing of it is the server's. Rates in Hz."""

    rate_hz: int = HEARING_RATE_HZ
    form: str = "s16le"
    channels: int = 1
    activity: ActivitySettings = field(default_factory=ActivitySettings)
    output_rate_hz: int = SPEECH_RATE_HZ
    speed: float = 1.0

    @classmethod
    def of(cls, query: Mapping[str, str], allowed: tuple[str, ...]) -> SessionSettings:
        """Raises InputError that names the parameter."""
        for name in query:
            if name not in allowed:
                raise InputError(f"parameter {name!r} is unknown; allowed: {', '.join(allowed)}")
        form = query.get("format", "s16le")
        if form not in FORMATS:
            raise InputError(f"format is {form!r}; allowed: {', '.join(FORMATS)}")
        channels = _integer(query, "channels", 1)
        if not 1 <= channels <= 8:
            raise InputError(f"channels is {channels}; 1 to 8 are allowed")
        silence_ms = _integer(query, "silence_ms", round(1e3 * ActivitySettings().silence_s))
        return cls(
            rate_hz=check_rate(_integer(query, "rate", HEARING_RATE_HZ)),
            form=form,
            channels=channels,
            activity=ActivitySettings(silence_s=silence_ms / 1e3),
            output_rate_hz=check_rate(
                _integer(query, "output_rate", SPEECH_RATE_HZ), "output_rate"
            ),
            speed=check_speed(query.get("speed", "1")),
        )


def _integer(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise InputError(f"{name} is {text!r}; a whole number is needed")
    return int(text)


def check_speed(value: object) -> float:
    """Raises InputError."""
    try:
        speed = float(value)  # type: ignore[arg-type]  # whatever it is, it is checked here
    except (TypeError, ValueError):
        raise InputError(f"speed is {value!r}; a number is needed") from None
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise InputError(f"speed is {value!r}; {MIN_SPEED} to {MAX_SPEED} are allowed")
    return speed


@dataclass(frozen=True, slots=True)
class Command:
    kind: str
    fields: dict[str, Any]


def parse(message: str | bytes, kinds: tuple[str, ...]) -> bytes | Command:
    """Audio, or a command of one of `kinds`. Raises InputError."""
    if isinstance(message, bytes):
        return message
    try:
        said = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the message is no JSON: {error}") from None
    if not isinstance(said, dict) or not isinstance(said.get("type"), str):
        raise InputError('the message is no JSON object with a "type"')
    kind = said.pop("type")
    if kind == "audio":
        return _audio(said.get("data"))
    if kind not in kinds:
        raise InputError(f"type is {kind!r}; allowed: audio, {', '.join(kinds)}")
    return Command(kind, said)


def _audio(data: object) -> bytes:
    if not isinstance(data, str):
        raise InputError("audio: data is missing; base64 text is needed")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"audio: data is no base64: {error}") from None


def error(message: str, code: str, stage: str | None = None) -> dict[str, Any]:
    """`stage`: the role of the stage that failed: stt, llm or tts."""
    said: dict[str, Any] = {"type": "error", "code": code, "message": message}
    return said if stage is None else {**said, "stage": stage}
