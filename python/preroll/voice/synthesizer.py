"""Text to samples: Piper where it is installed, else espeak-ng. One text at a time each.

Piper is under the GPL: it is an optional extra that this project never imports but here, inside a
stage, which is a process of its own. A new synthesizer is a class with `rate_hz` and `say`.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from preroll.errors import InputError, UnavailableError
from preroll.voice.decode import decode
from preroll.voice.pcm import HEARING_RATE_HZ, Samples

INSTALL = "pip install piper-tts, or Debian: apt install espeak-ng"
TIMEOUT_S = 30.0


class Synthesizer(Protocol):
    """Not safe for two threads: espeak keeps global state, in Piper too."""

    name: str
    rate_hz: int

    def say(self, text: str, speed: float) -> Samples:
        """Mono samples at `rate_hz`; none when the voice cannot say the text."""

    def stop(self) -> None:
        """From another thread: ends a `say` that is running, which then raises whatever it does."""


class Stoppable:
    """An ONNX session whose run can be ended, at the next node of its graph."""

    def __init__(self, session: Any, make_options: Any) -> None:
        self._session = session
        self._make_options = make_options
        self._running: Any = None

    def run(self, names: Any, feed: Any) -> Any:
        self._running = self._make_options()
        try:
            return self._session.run(names, feed, self._running)
        finally:
            self._running = None

    def stop(self) -> None:
        running = self._running
        if running is not None:
            running.terminate = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class Piper:
    """A Piper voice on ONNX Runtime."""

    name = "piper"

    def __init__(self, model: Path, threads: int) -> None:
        from preroll.voice import onnx  # before Piper: it imports ONNX Runtime too

        from piper import PiperVoice, SynthesisConfig  # isort: skip
        from piper.config import PiperConfig  # isort: skip

        options = onnx.Runtime.SessionOptions()
        # Measured on this kind of model: rewriting the graph takes longer than loading it, and a
        # sentence is said no faster afterwards.
        options.graph_optimization_level = onnx.Runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnx.session(model, threads, options)
        config = PiperConfig.from_dict(json.loads(Path(f"{model}.json").read_text()))
        self._session = Stoppable(session, onnx.Runtime.RunOptions)
        self._voice: Any = PiperVoice(session=self._session, config=config)
        self._settings: Any = SynthesisConfig
        self.rate_hz = int(config.sample_rate)

    def say(self, text: str, speed: float) -> Samples:
        config = self._settings(length_scale=1.0 / speed)
        chunks = [c.audio_float_array for c in self._voice.synthesize(text, syn_config=config)]
        if not chunks:
            return np.zeros(0, np.float32)
        return np.concatenate(chunks).astype(np.float32)

    def stop(self) -> None:
        self._session.stop()


class Espeak:
    """The program espeak-ng, a process for each text."""

    name = "espeak-ng"
    rate_hz = HEARING_RATE_HZ
    words_per_minute = 175

    def __init__(self, program: str, voice: str) -> None:
        self._argv = [program, "--stdin", "--stdout", "-v", voice]
        self._running: subprocess.Popen[bytes] | None = None

    def say(self, text: str, speed: float) -> Samples:
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
        return np.concatenate(list(decode(out))) if out else np.zeros(0, np.float32)

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()


def get_synthesizer(engine: str, model: str, threads: int) -> Synthesizer:
    """`engine`: piper, espeak-ng, or auto (the first that is installed). Raises InputError."""
    if engine not in ("auto", "piper", "espeak-ng"):
        raise InputError(f"options: engine is {engine!r}; allowed: auto, piper, espeak-ng")
    if engine != "espeak-ng" and importlib.util.find_spec("piper") is not None:
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
