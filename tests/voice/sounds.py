"""Sounds whose properties are known, and containers around them."""

from __future__ import annotations

import io
import struct
from typing import Any

import av
import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]


def tone(seconds: float, rate_hz: int = 16_000, hz: float = 440.0, level: float = 0.3) -> Samples:
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    return (level * np.sin(2 * np.pi * hz * t)).astype(np.float32)


def noise(seconds: float, rate_hz: int = 16_000, level: float = 0.1, seed: int = 1) -> Samples:
    rng = np.random.default_rng(seed)
    return (level * rng.standard_normal(round(seconds * rate_hz))).astype(np.float32)


def silence(seconds: float, rate_hz: int = 16_000) -> Samples:
    return np.zeros(round(seconds * rate_hz), np.float32)


def dbfs(level: float) -> float:
    """The amplitude of a level in dB relative to full scale."""
    return float(10.0 ** (level / 20.0))


def wav(data: bytes, rate_hz: int, channels: int = 1, bits: int = 16, form: int = 1) -> bytes:
    """A WAV file around raw samples; `form` 3 is float."""
    block = channels * bits // 8
    fmt = struct.pack("<IHHIIHH", 16, form, channels, rate_hz, rate_hz * block, block, bits)
    body = b"WAVEfmt " + fmt + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def s16(samples: Samples) -> bytes:
    return bytes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def encoded(samples: Samples, rate_hz: int, container: str, codec: str, **stream: Any) -> bytes:
    """The samples in a container of FFmpeg's."""
    sink = io.BytesIO()
    with av.open(sink, mode="w", format=container) as out:
        track = out.add_stream(codec, rate=rate_hz)
        track.layout = stream.pop("layout", "mono")
        frame = av.AudioFrame.from_ndarray(samples[None, :], format="flt", layout="mono")
        frame.sample_rate = rate_hz
        for packet in [*track.encode(frame), *track.encode(None)]:
            out.mux(packet)
    return sink.getvalue()


def rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) if samples.size else 0.0
