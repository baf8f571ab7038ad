"""Raw samples: whole ones only, in the two forms that this package knows.

Inside, audio is float32 in [-1, 1], mono. On the wire it is s16le: signed 16-bit little endian.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from preroll.errors import InputError

Samples = npt.NDArray[np.float32]

SPEECH_RATE_HZ = 24_000
"""What clients of `POST /v1/audio/speech` expect of `pcm`: 24 kHz s16le mono."""

HEARING_RATE_HZ = 16_000
"""What voice activity detection and transcription work at."""

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 48_000

FORMATS = {"s16le": 2, "f32le": 4}
"""Sample formats that a session may declare, with their bytes per sample."""


class Framer:
    """Cuts a byte stream at whole frames (one sample of every channel), whatever the chunks."""

    def __init__(self, form: str = "s16le", channels: int = 1) -> None:
        if form not in FORMATS:
            raise InputError(f"format is {form!r}; allowed: {', '.join(FORMATS)}")
        if not 1 <= channels <= 8:
            raise InputError(f"channels is {channels}; 1 to 8 are allowed")
        self.form = form
        self.channels = channels
        self._frame_bytes = FORMATS[form] * channels
        self._rest = b""

    def push(self, data: bytes) -> Samples:
        """The samples that `data` completes, mixed to mono; a part of one is kept for later."""
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % self._frame_bytes
        self._rest = data[whole:]
        return to_mono(to_float(data[:whole], self.form), self.channels)

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that never became whole, if the stream ends now."""
        return len(self._rest)


def to_float(data: bytes, form: str = "s16le") -> Samples:
    """Samples of whole frames; what is not a finite number in an `f32le` stream is silence."""
    if form == "s16le":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768.0
    values = np.frombuffer(data, "<f4").astype(np.float32)
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)


def to_mono(samples: Samples, channels: int) -> Samples:
    """The mean of interleaved channels."""
    if channels == 1:
        return samples
    return np.asarray(samples.reshape(-1, channels).mean(axis=1), np.float32)


def to_s16le(samples: Samples) -> bytes:
    """Two bytes a sample; what is out of [-1, 1] is clipped, not wrapped."""
    scaled = np.clip(np.rint(samples * 32767.0), -32768, 32767)
    return bytes(scaled.astype("<i2").tobytes())


def check_rate(rate_hz: object, name: str = "rate") -> int:
    """A sample rate that a client declared. Raises InputError."""
    if isinstance(rate_hz, bool) or not isinstance(rate_hz, int):
        raise InputError(f"{name} is {rate_hz!r}; a whole number of Hz is needed")
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise InputError(f"{name} is {rate_hz} Hz; {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz are allowed")
    return rate_hz
