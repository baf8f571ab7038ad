"""Voice activity by the Silero model (ONNX): one probability per 32 ms of 16 kHz audio.

The model is loaded once per process and shared; what it remembers belongs to each stream.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from preroll.errors import UnavailableError
from preroll.voice.pcm import HEARING_RATE_HZ, Samples

WINDOW = 512
"""Samples that one probability stands for."""
WINDOW_S = WINDOW / HEARING_RATE_HZ
CONTEXT = 64
"""Samples of the window before that the model sees again."""

PACKAGE, FILE = "silero_vad", "data/silero_vad_16k_op15.onnx"
INSTALL = "pip install --no-deps silero-vad"


class Silero:
    """The voice activity of one stream."""

    def __init__(self, model: Any | None = None) -> None:
        self._model = model or load()
        self._state = np.zeros((2, 1, 128), np.float32)
        self._input = np.zeros((1, CONTEXT + WINDOW), np.float32)
        self._rate = np.array(HEARING_RATE_HZ, np.int64)
        self._rest = np.zeros(0, np.float32)

    def push(self, samples: Samples) -> list[float]:
        """The probability of speech in each window that `samples` (16 kHz) complete."""
        data = np.concatenate([self._rest, samples]) if self._rest.size else samples
        count = data.size // WINDOW
        found = [self._window(data[i * WINDOW : (i + 1) * WINDOW]) for i in range(count)]
        self._rest = data[count * WINDOW :].copy()
        return found

    def _window(self, window: Samples) -> float:
        self._input[0, :CONTEXT] = self._input[0, -CONTEXT:]
        self._input[0, CONTEXT:] = window
        feed = {"input": self._input, "state": self._state, "sr": self._rate}
        probability, self._state = self._model.run(None, feed)
        return float(probability[0, 0])


@lru_cache(maxsize=1)
def load() -> Any:
    """The shared session. Raises UnavailableError when the package is missing."""
    path = model_path()
    from preroll.voice import onnx

    # One thread, a tenth of a millisecond of work: handing it on would cost more than it saves.
    return onnx.session(path)


def model_path() -> Path:
    """The model that the package carries, found without importing it (it would import torch)."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UnavailableError(f"the package {PACKAGE!r} is not installed; install it: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations))) / FILE
