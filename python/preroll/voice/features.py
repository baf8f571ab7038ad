"""Log-mel features as the Whisper family expects them.

Source: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022,
section 2.2 (80 channels, 25 ms windows, 10 ms stride, scaled to about [-1, 1]).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from preroll.voice.pcm import Samples

RATE_HZ = 16_000
HOP = 160
WINDOW = 400
MELS = 80
FRAMES_PER_S = RATE_HZ // HOP
DYNAMIC_RANGE = 8.0
"""Decades below the loudest cell at which the picture is cut off."""


def log_mel(samples: Samples, window_s: float) -> Samples:
    """Features of shape (MELS, 100·window_s), float32, of mono 16 kHz samples in [-1, 1].

    Longer audio is cut to the window; shorter is padded with silence.
    """
    length = round(window_s * RATE_HZ)
    padded = np.zeros(length + WINDOW, np.float32)
    kept = samples[:length]
    # Half a window of mirrored signal in front centres the frames on their samples.
    padded[WINDOW // 2 : WINDOW // 2 + kept.size] = kept
    head = min(WINDOW // 2, max(kept.size - 1, 0))
    padded[WINDOW // 2 - head : WINDOW // 2] = kept[1 : head + 1][::-1]
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[:length:HOP]
    # Frames that hold silence only need no transform: short speech in a 10 s window is the rule.
    used = min(frames.shape[0], (kept.size + WINDOW) // HOP + 1)
    spectrum = np.fft.rfft(frames[:used] * _hann(), axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
    mel = np.full((MELS, frames.shape[0]), -10.0, np.float32)
    np.log10(np.maximum(_filters() @ power.T, 1e-10), out=mel[:, :used])
    np.maximum(mel, mel.max() - DYNAMIC_RANGE, out=mel)
    mel += 4.0
    mel /= 4.0
    return mel


@lru_cache(maxsize=1)
def _hann() -> Samples:
    return np.hanning(WINDOW + 1)[:-1].astype(np.float32)


@lru_cache(maxsize=1)
def _filters() -> Samples:
    """Triangles of equal area on the mel scale of Slaney's Auditory Toolbox (1998): linear to
    1 kHz, logarithmic above. Shape (MELS, WINDOW // 2 + 1)."""
    edges_hz = _mel_to_hz(np.linspace(0.0, _hz_to_mel(RATE_HZ / 2), MELS + 2))
    bins_hz = np.fft.rfftfreq(WINDOW, 1 / RATE_HZ)
    low, centre, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising = (bins_hz - low) / (centre - low)
    falling = (high - bins_hz) / (high - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return np.asarray(triangles * 2.0 / (high - low), np.float32)


LINEAR_HZ_PER_MEL = 200.0 / 3
KNEE_HZ = 1000.0
KNEE_MEL = KNEE_HZ / LINEAR_HZ_PER_MEL
LOG_STEP = np.log(6.4) / 27.0


def _hz_to_mel(hz: float) -> float:
    if hz < KNEE_HZ:
        return hz / LINEAR_HZ_PER_MEL
    return float(KNEE_MEL + np.log(hz / KNEE_HZ) / LOG_STEP)


def _mel_to_hz(mel: np.ndarray) -> np.ndarray:
    above = KNEE_HZ * np.exp(LOG_STEP * (mel - KNEE_MEL))
    return np.where(mel < KNEE_MEL, mel * LINEAR_HZ_PER_MEL, above)
