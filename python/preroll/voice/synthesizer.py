"""Text to samples: Piper where it is installed, else espeak-ng. One text at a time each.

A new synthesizer is a class with `rate_hz`, `parts` and `stop`.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from preroll.errors import InputError, UnavailableError
from preroll.voice.decode import decode
from preroll.voice.pcm import HEARING_RATE_HZ, Samples

INSTALL = "pip install piper-tts, or Debian: apt install espeak-ng"
TIMEOUT_S = 30.0


class Part(NamedTuple):
    """Mono samples, at the voice's rate. `of`, with the first ones of a sentence: how many samples
    all of the text has, as far as can be told from that sentence."""

    samples: Samples
    of: int = 0


class Synthesizer(Protocol):
    """Not safe for two threads: espeak keeps global state, in Piper too."""

    name: str
    rate_hz: int

    def parts(self, text: str, speed: float) -> Iterator[Part]:
        """The text's audio, part by part as it is made; none when the voice cannot say it."""

    def stop(self) -> None:
        """From another thread: ends the making of a part, which then raises whatever it does."""


def say(voice: Synthesizer, text: str, speed: float = 1.0) -> Samples:
    """All of a text at once: mono samples at the voice's rate."""
    parts = [part.samples for part in voice.parts(text, speed)]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


class Espeak:
    """The program espeak-ng, a process for each text."""

    name = "espeak-ng"
    rate_hz = HEARING_RATE_HZ
    words_per_minute = 175

    def __init__(self, program: str, voice: str) -> None:
        self._argv = [program, "--stdin", "--stdout", "-v", voice]
        self._running: subprocess.Popen[bytes] | None = None

    def parts(self, text: str, speed: float) -> Iterator[Part]:
        rate = max(80, min(450, round(self.words_per_minute * speed)))
        pipe = subprocess.PIPE
        argv = [*self._argv, "-s", str(rate)]
        try:
            with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe) as self._running:
                out, err = self._running.communicate(text.encode(), TIMEOUT_S)
        except (subprocess.SubprocessError, OSError) as error:
            raise UnavailableError(f"espeak-ng failed: {error}") from error
        if self._running.returncode:
            raise UnavailableError(f"espeak-ng failed: {err.decode(errors='replace')[-200:]}")
        samples = np.concatenate(list(decode(out))) if out else np.zeros(0, np.float32)
        if samples.size:
            yield Part(samples, samples.size)

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()


def get_synthesizer(engine: str, model: str, threads: int) -> Synthesizer:
    """`engine`: piper, espeak-ng, or auto (the first that is installed). Raises InputError."""
    if engine not in ("auto", "piper", "espeak-ng"):
        raise InputError(f"options: engine is {engine!r}; allowed: auto, piper, espeak-ng")
    if engine != "espeak-ng" and importlib.util.find_spec("piper") is not None:
        from preroll.voice.piper_voice import Piper

        return Piper(find_voice(model), threads)
    program = shutil.which("espeak-ng")
    if engine == "piper" or program is None:
        raise InputError(f"no voice for engine = {engine!r} is installed: {INSTALL}")
    return Espeak(program, "en-us")


def find_voice(model: str) -> Path:
    """The ONNX file of a Piper voice: a path, or `pkg:NAME`, the one an installed package
    carries, found without importing it. Raises InputError."""
    if not model.startswith("pkg:"):
        path = Path(model)
        found = [path] if path.is_file() else []
    else:
        name = model.removeprefix("pkg:")
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        folders = spec.submodule_search_locations if spec else None
        found = sorted(Path(next(iter(folders))).rglob("*.onnx")) if folders else []
    if len(found) != 1:
        raise InputError(f"options: model {model!r}: {len(found)} voices found; install one")
    return found[0]
