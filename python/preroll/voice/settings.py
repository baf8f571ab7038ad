"""What the voice service is told by its app, and what one session asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from preroll.errors import InputError
from preroll.voice.history import MAX_CHARS

INSTRUCTIONS = "You are a friendly voice assistant. Answer briefly in plain spoken English."
"""Short: a small model on a processor reads a hundred tokens a second, once in each slot."""


@dataclass(frozen=True, slots=True)
class VoiceSettings:
    """Of the service: the stages that it calls, and bounds. `model`: what the language model is
    asked for. `max_input_chars`: of one speech request. `max_audio_s`: of one recording.
    `preemptive_generation`: an answer is begun in the pause that may end the turn, and kept back
    until it does. `max_answer_tokens`: of one spoken answer. `max_history_chars`: of a
    conversation, that the language model is given. `lead_s`: how far audio is sent ahead of
    playing."""

    stt: str = "stt"
    llm: str = "llm"
    tts: str = "tts"
    model: str = "smollm2"
    instructions: str = INSTRUCTIONS
    max_input_chars: int = 4096
    max_audio_s: float = 4 * 3600.0
    max_answer_tokens: int = 160
    max_history_chars: int = MAX_CHARS
    lead_s: float = 1.0
    preemptive_generation: bool = True
    page: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More fields for the language model's requests, such as a temperature."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> VoiceSettings:
        """From a stage's options. Raises InputError."""
        known = {f.name: f.default for f in fields(cls)}
        _check_names(options, sorted(known))
        for name, value in options.items():
            kind = dict if name == "extra" else type(known[name])
            allowed = (int, float) if kind is float else (kind,)
            if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
                raise InputError(f"options: {name} is {value!r}; a {kind.__name__} is allowed")
        return cls(**dict(options))


def check_options(
    options: Mapping[str, Any], allowed: Sequence[str], counts: Sequence[str]
) -> None:
    """Of a model stage; `counts`: those that are whole numbers from 1 on, the others are texts.
    Raises InputError."""
    _check_names(options, allowed)
    for name, value in options.items():
        if name in counts and (type(value) is not int or value < 1):
            raise InputError(f"options: {name} is {value!r}; a whole number from 1 on is allowed")
        if name not in counts and not isinstance(value, str):
            raise InputError(f"options: {name} is {value!r}; a text is allowed")


def _check_names(options: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for name in options:
        if name not in allowed:
            raise InputError(f"options: {name!r} is unknown; allowed: {', '.join(allowed)}")
