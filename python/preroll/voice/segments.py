"""Long audio as windows of speech: cut where nobody speaks, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from preroll.voice.activity import Activity, ActivitySettings
from preroll.voice.pcm import HEARING_RATE_HZ, Samples
from preroll.voice.silero import WINDOW, WINDOW_S

SETTINGS = ActivitySettings(silence_s=0.3, pad_s=0.2)
MOST_S = 28.0
"""Of one window: what the recognizer takes, less the pads."""
GOOD_S = 9.0
"""A window ends at the first pause after this: the cost follows windows of 10 s."""
PAUSE_S = 0.6
"""A longer pause always ends a window: behind it the decoder tends to take its text for whole."""
SEARCH_S = 6.0
"""Of speech without a pause, the last part in which the best place for a cut is looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    start_s: float
    audio: Samples

    @property
    def end_s(self) -> float:
        return self.start_s + self.audio.size / HEARING_RATE_HZ


class Segmenter:
    """`push` blocks (mono, 16 kHz) and get the segments that they complete; then `finish`."""

    def __init__(self, vad: Callable[[Samples], list[float]]) -> None:
        self._vad = vad
        self._activity = Activity(SETTINGS)
        self._rest = np.zeros(0, np.float32)
        self._held: list[Samples] = []
        self._probabilities: list[float] = []
        self._held_from_s = 0.0
        self._has_speech = False
        self._quiet_s = 0.0

    def push(self, block: Samples) -> Iterator[Segment]:
        data = np.concatenate([self._rest, block])
        count = data.size // WINDOW
        self._rest = data[count * WINDOW :]
        for i in range(count):
            yield from self._window(data[i * WINDOW : (i + 1) * WINDOW])

    def finish(self) -> Iterator[Segment]:
        if self._rest.size:
            padded = np.zeros(WINDOW, np.float32)
            padded[: self._rest.size] = self._rest
            self._rest = self._rest[:0]
            yield from self._window(padded)
        self._has_speech = self._has_speech or any(self._activity.finish())
        # Speech that ends with the longest window left nothing behind it.
        if self._has_speech and self._held:
            yield self._cut(len(self._held))

    def _window(self, window: Samples) -> Iterator[Segment]:
        (probability,) = self._vad(window)
        self._held.append(window)
        is_quiet = probability < SETTINGS.stop
        self._quiet_s = self._quiet_s + WINDOW_S if is_quiet else 0.0
        self._probabilities.append(probability)
        for edge in self._activity.push([probability]):
            self._has_speech = True
            if edge.kind == "stop" and self._held_s >= GOOD_S:
                yield self._cut(len(self._held))
        if not self._has_speech:
            self._forget()
        elif not self._activity.is_speech and self._quiet_s >= PAUSE_S:
            yield self._cut(len(self._held))
        elif self._held_s >= MOST_S:
            yield self._cut(self._quietest())

    @property
    def _held_s(self) -> float:
        return len(self._held) * WINDOW_S

    def _quietest(self) -> int:
        """Behind the window that is the least like speech, the last of several."""
        search = np.array(self._probabilities[-round(SEARCH_S / WINDOW_S) :][::-1])
        return len(self._held) - int(search.argmin())

    def _cut(self, count: int) -> Segment:
        segment = Segment(self._held_from_s, np.concatenate(self._held[:count]))
        self._drop(count)
        self._has_speech = self._activity.is_speech
        return segment

    def _forget(self) -> None:
        """Silence in front of speech is kept for as long as speech may need it."""
        keep = round((SETTINGS.pad_s + SETTINGS.speech_s) / WINDOW_S) + 1
        if len(self._held) > keep:
            self._drop(len(self._held) - keep)

    def _drop(self, count: int) -> None:
        del self._held[:count]
        del self._probabilities[:count]
        self._held_from_s += count * WINDOW_S
