"""One stretch of speech: its audio, and what has been agreed of it so far.

The audio that a transcript still needs is a window at the end of the utterance: words that are
final leave it, so that an encoder whose cost follows its window never pays for a whole speech,
and a decoder that has them forced on it not for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from preroll.voice.agreement import Agreement, Word, joined
from preroll.voice.pcm import HEARING_RATE_HZ, Samples

MOST_BEFORE = 20
"""Tokens in front of a window that its transcript goes on from: a sentence."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What a transcription stage heard in one window, after the forced prefix. Times of words in
    seconds from the window's first sample."""

    words: tuple[Word, ...]
    no_speech_prob: float = 0.0
    mean_log_prob: float = 0.0


@dataclass(slots=True)
class Utterance:
    """`start_s`: where its window begins in the stream; `number`: 1 for the first; `kept_s`: of
    audio that is kept from its first sample on, whatever leaves the window."""

    number: int
    start_s: float
    voiced_until_s: float
    kept_s: float = 0.0
    end_s: float | None = None
    """Where speech ended, once that is decided."""
    heard_until_s: float = 0.0
    """The end of the audio of the last transcript."""
    final: list[Word] = field(default_factory=list)
    """Its words that were told to be final, while a whole may still follow."""
    whole: list[Word] = field(default_factory=list)
    """Its words as they were transcribed anew at what may be its end."""
    whole_voiced_s: float = -1.0
    """Until where there was speech when that was done."""
    agreement: Agreement = field(default_factory=Agreement)
    before_ids: tuple[int, ...] = ()
    """The last tokens of the words that have left the window."""
    first_s: float = field(init=False)
    """Where it begins."""
    _audio_s: float = field(init=False)
    """Where the audio that is still there begins: at `first_s`, or at `start_s`."""
    _audio: list[Samples] = field(default_factory=list)
    _num_samples: int = 0

    def __post_init__(self) -> None:
        self.first_s = self._audio_s = self.start_s

    def push(self, samples: Samples) -> None:
        self._audio.append(samples)
        self._num_samples += samples.size

    @property
    def audio_until_s(self) -> float:
        return self._audio_s + self._num_samples / HEARING_RATE_HZ

    @property
    def window_s(self) -> float:
        return self.audio_until_s - self.start_s

    @property
    def whole_text(self) -> str | None:
        """None before all that was spoken was transcribed anew."""
        return joined(self.whole) if self.whole_voiced_s >= self.voiced_until_s else None

    @property
    def is_shortened(self) -> bool:
        """Whether audio of it is gone."""
        return self._audio_s > self.first_s

    def audio(self, until_s: float, since_s: float | None = None) -> Samples:
        """The audio up to a time of the stream, the window's unless `since_s` says otherwise."""
        whole = np.concatenate(self._audio) if self._audio else np.zeros(0, np.float32)
        self._audio = [whole]
        since_s = self.start_s if since_s is None else since_s
        return whole[self._sample(since_s) : self._sample(until_s)]

    def drop_until(self, time_s: float) -> None:
        """Moves the window's start: the committed words in front of it leave, and their audio
        unless all of it is kept."""
        count = min(self._num_samples, self._sample(max(time_s, self.start_s)))
        self.start_s = self._audio_s + count / HEARING_RATE_HZ
        left = _ids(self.agreement.forget_until(time_s))
        self.before_ids = (self.before_ids + left)[-MOST_BEFORE:]
        if self.audio_until_s - self._audio_s > self.kept_s:
            whole = self.audio(self.audio_until_s)
            self._audio, self._num_samples, self._audio_s = [whole.copy()], whole.size, self.start_s

    def _sample(self, time_s: float) -> int:
        return max(0, round((time_s - self._audio_s) * HEARING_RATE_HZ))

    def prefix_ids(self) -> tuple[int, ...]:
        return _ids(self.agreement.committed)


def _ids(words: Iterable[Word]) -> tuple[int, ...]:
    return tuple(i for word in words for i in word.token_ids)
