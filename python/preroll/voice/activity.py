"""From probabilities of speech to stretches of speech, with two thresholds and two patiences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from preroll.errors import InputError
from preroll.voice.silero import WINDOW_S


@dataclass(frozen=True, slots=True)
class ActivitySettings:
    """`start` and `stop`: probabilities that begin and that may end speech. `speech_s` of it in a
    row begin a stretch, `silence_s` without it end one. `pad_s`: kept in front of a stretch."""

    start: float = 0.5
    stop: float = 0.35
    speech_s: float = 0.096
    silence_s: float = 0.5
    pad_s: float = 0.2

    def __post_init__(self) -> None:
        if not 0.0 < self.stop <= self.start < 1.0:
            raise InputError(
                f"vad: stop is {self.stop}, start is {self.start}; 0 < stop <= start < 1 is allowed"
            )
        for name, value, least, most in (
            ("speech_s", self.speech_s, 0.0, 2.0),
            ("silence_s", self.silence_s, 0.1, 10.0),
            ("pad_s", self.pad_s, 0.0, 2.0),
        ):
            if not least <= value <= most:
                raise InputError(f"vad: {name} is {value}; {least} to {most} s are allowed")


@dataclass(frozen=True, slots=True)
class Edge:
    """`at_s`: where speech begins or ends, in seconds of the stream. `known_s`: how much of the
    stream had come when that was decided."""

    kind: Literal["start", "stop"]
    at_s: float
    known_s: float


class Activity:
    """The edges of speech in one stream of probabilities."""

    def __init__(self, settings: ActivitySettings | None = None) -> None:
        self.settings = settings or ActivitySettings()
        self.is_speech = False
        self.voiced_until_s = 0.0
        """The end of the last window that was taken for speech."""
        self._now_s = 0.0
        self._run_began_s: float | None = None

    @property
    def silence_s(self) -> float:
        """Seconds without speech at the end of what has come, while in a stretch of speech."""
        return self._now_s - self.voiced_until_s if self.is_speech else 0.0

    def push(self, probabilities: list[float]) -> Iterator[Edge]:
        for probability in probabilities:
            began_s = self._now_s
            self._now_s += WINDOW_S
            edge = (
                self._inside(probability) if self.is_speech else self._outside(probability, began_s)
            )
            if edge is not None:
                yield edge

    def finish(self) -> Iterator[Edge]:
        """Ends a stretch that the end of the stream cuts off, one that had only just begun too:
        a last short word is a word."""
        if self._run_began_s is not None:
            start_s, self._run_began_s = self._run_began_s, None
            self.is_speech, self.voiced_until_s = True, self._now_s
            yield Edge("start", start_s, self._now_s)
        if self.is_speech:
            self.is_speech = False
            yield Edge("stop", self.voiced_until_s, self._now_s)

    def _outside(self, probability: float, began_s: float) -> Edge | None:
        if probability < self.settings.start:
            self._run_began_s = None
            return None
        if self._run_began_s is None:
            self._run_began_s = began_s
        if self._now_s - self._run_began_s < self.settings.speech_s - 1e-9:
            return None
        self.is_speech = True
        self.voiced_until_s = self._now_s
        start_s, self._run_began_s = self._run_began_s, None
        return Edge("start", start_s, self._now_s)

    def _inside(self, probability: float) -> Edge | None:
        if probability >= self.settings.stop:
            self.voiced_until_s = self._now_s
            return None
        if self.silence_s < self.settings.silence_s - 1e-9:
            return None
        self.is_speech = False
        return Edge("stop", self.voiced_until_s, self._now_s)
