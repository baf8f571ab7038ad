"""A client's stream of audio bytes to samples at the hearing rate, whatever its chunks."""

from __future__ import annotations

from preroll.voice.pcm import HEARING_RATE_HZ, Framer, Samples
from preroll.voice.resample import Resampler
from preroll.voice.wire import SessionSettings


class Ear:
    """The declared format and rate of one session."""

    def __init__(self, settings: SessionSettings) -> None:
        self._framer = Framer(settings.form, settings.channels)
        self._resampler = Resampler(settings.rate_hz, HEARING_RATE_HZ)

    def push(self, data: bytes) -> Samples:
        return self._resampler.push(self._framer.push(data))

    def finish(self) -> Samples:
        """The last milliseconds, which the resampler's filter still held."""
        return self._resampler.finish()
