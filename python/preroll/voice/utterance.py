"""One stretch of speech: its audio, and what has been agreed of it so far.

The audio that a transcript still needs is a window at the end of the utterance: words that are
final leave it, so that an encoder whose cost follows its window never pays for a whole speech.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from preroll.voice.agreement import Agreement, Word
from preroll.voice.pcm import HEARING_RATE_HZ, Samples


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What a transcription stage heard in one window, after the forced prefix. Times of words in
    seconds from the window's first sample."""

    words: tuple[Word, ...]
    no_speech_prob: float = 0.0
    mean_log_prob: float = 0.0


@dataclass(slots=True)
class Utterance:
    """`start_s`: where its window begins in the stream; `number`: 1 for the first."""

    number: int
    start_s: float
    voiced_until_s: float
    end_s: float | None = None
    """Where speech ended, once that is decided."""
    heard_until_s: float = 0.0
    """The end of the audio of the last transcript."""
    whole: str | None = None
    """Its text as it was transcribed anew at its end."""
    whole_voiced_s: float = -1.0
    """Until where there was speech when that was done."""
    is_shortened: bool = False
    agreement: Agreement = field(default_factory=Agreement)
    _audio: list[Samples] = field(default_factory=list)
    _num_samples: int = 0

    def push(self, samples: Samples) -> None:
        self._audio.append(samples)
        self._num_samples += samples.size

    @property
    def audio_until_s(self) -> float:
        return self.start_s + self._num_samples / HEARING_RATE_HZ

    @property
    def window_s(self) -> float:
        return self._num_samples / HEARING_RATE_HZ

    def audio(self, until_s: float) -> Samples:
        """The window's audio up to a time of the stream."""
        whole = np.concatenate(self._audio) if self._audio else np.zeros(0, np.float32)
        self._audio = [whole]
        return whole[: max(0, round((until_s - self.start_s) * HEARING_RATE_HZ))]

    def drop_until(self, time_s: float) -> None:
        """Moves the window's start: the committed words in front of it leave with their audio."""
        whole = self.audio(self.audio_until_s)
        count = min(whole.size, max(0, round((time_s - self.start_s) * HEARING_RATE_HZ)))
        self._audio, self._num_samples = [whole[count:].copy()], whole.size - count
        self.start_s += count / HEARING_RATE_HZ
        self.agreement.forget_until(time_s)
        self.is_shortened = True

    def prefix_ids(self) -> tuple[int, ...]:
        return tuple(i for word in self.agreement.committed for i in word.token_ids)
