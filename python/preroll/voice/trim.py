"""Silence before speech: what may be cut, and where the first audible sample is.

A synthesis often starts with silence or low noise: hundreds of milliseconds in which bytes flow
and nobody hears anything. So time to first byte and time to first audible sample are two numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preroll.voice.pcm import Samples

AUDIBLE_DBFS = -40.0
"""RMS over 10 ms above which a sample counts as audible: soft speech is 10 dB louder, the noise
in front of a synthesis 10 dB softer."""

WINDOW_S = 0.010


@dataclass(frozen=True, slots=True)
class TrimSettings:
    """`above_noise_db`: speech is that much louder than the noise in front of it. `quiet_dbfs`:
    what is softer is never speech. `keep_s`: left in front, so that no attack is cut off.
    `hold_s`: the longest wait for speech; then what was held is judged by its own peak."""

    above_noise_db: float = 12.0
    quiet_dbfs: float = -55.0
    keep_s: float = 0.010
    hold_s: float = 2.0
    below_peak_db: float = 30.0


class LeadingTrim:
    """Cuts the silence at the front of one stream of samples."""

    def __init__(self, rate_hz: int, settings: TrimSettings | None = None) -> None:
        self.settings = settings or TrimSettings()
        self.trimmed_samples = 0
        self._rate_hz = rate_hz
        self._window = max(1, round(WINDOW_S * rate_hz))
        self._held: list[Samples] = []
        self._is_open = False

    @property
    def trimmed_ms(self) -> float:
        return 1000.0 * self.trimmed_samples / self._rate_hz

    def push(self, samples: Samples) -> Samples:
        """Samples to pass on; empty while only silence has come."""
        if self._is_open:
            return samples
        self._held.append(samples)
        held = np.concatenate(self._held)
        self._held = [held]
        levels = levels_dbfs(held, self._window)
        start = self._speech(levels)
        if start is None and held.size >= self.settings.hold_s * self._rate_hz:
            start = self._loudest(levels)
        return held[:0] if start is None else self._open(held, start)

    def finish(self) -> Samples:
        """What was held back when the stream ended without speech; nothing but sound is lost."""
        if self._is_open or not self._held:
            return np.zeros(0, np.float32)
        held = np.concatenate(self._held)
        return self._open(held, self._loudest(levels_dbfs(held, self._window)))

    def _speech(self, levels: Samples) -> int | None:
        """The first window of two in a row that stand out of the noise before them."""
        if levels.size < 2:
            return None
        noise = np.minimum.accumulate(np.maximum(levels, self.settings.quiet_dbfs))
        limit = np.minimum(noise + self.settings.above_noise_db, AUDIBLE_DBFS + 5.0)
        loud = levels > np.maximum(limit, self.settings.quiet_dbfs)
        both = np.flatnonzero(loud[:-1] & loud[1:])
        return int(both[0]) if both.size else None

    def _loudest(self, levels: Samples) -> int:
        """The first window near the peak: a voice that is soft throughout is not silence."""
        if not levels.size or levels.max() <= self.settings.quiet_dbfs:
            return 0
        return int(np.flatnonzero(levels >= levels.max() - self.settings.below_peak_db)[0])

    def _open(self, held: Samples, window: int) -> Samples:
        start = max(0, window * self._window - round(self.settings.keep_s * self._rate_hz))
        self._is_open = True
        self._held = []
        self.trimmed_samples = start
        return held[start:]


class FirstAudible:
    """Finds the position of the first audible sample of one stream."""

    def __init__(self, rate_hz: int) -> None:
        self._window = max(1, round(WINDOW_S * rate_hz))
        self._rest = np.zeros(0, np.float32)
        self._seen = 0
        self.position: int | None = None

    def push(self, samples: Samples) -> bool:
        """Whether the first audible sample is among these."""
        if self.position is not None:
            return False
        data = np.concatenate([self._rest, samples])
        levels = levels_dbfs(data, self._window)
        loud = np.flatnonzero(levels > AUDIBLE_DBFS)
        if loud.size:
            self.position = self._seen + int(loud[0]) * self._window
            return True
        whole = levels.size * self._window
        self._seen += whole
        self._rest = data[whole:]
        return False


def levels_dbfs(samples: Samples, window: int) -> Samples:
    """RMS of each whole window in dB relative to full scale; -120 for digital silence."""
    count = samples.size // window
    cut = samples[: count * window].reshape(count, window)
    power = np.einsum("ij,ij->i", cut, cut) / window
    return np.asarray(10.0 * np.log10(np.maximum(power, 1e-12)), np.float32)
