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


class Piper:
    """A Piper voice on ONNX Runtime."""

    name = "piper"

    def __init__(self, model: Path, threads: int) -> None:
        import onnxruntime
        from piper import PiperVoice, SynthesisConfig
        from piper.config import PiperConfig

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that spin between two sentences take what the other stages need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )

        config = PiperConfig.from_dict(json.loads(Path(f"{model}.json").read_text()))
        self._voice: Any = PiperVoice(session=session, config=config)
        self._settings: Any = SynthesisConfig
        self.rate_hz = int(config.sample_rate)

    def say(self, text: str, speed: float) -> Samples:
        config = self._settings(length_scale=1.0 / speed)
        chunks = [c.audio_float_array for c in self._voice.synthesize(text, syn_config=config)]
        if not chunks:
            return np.zeros(0, np.float32)
        return np.concatenate(chunks).astype(np.float32)


class Espeak:
    """The program espeak-ng, a process for each text."""

    name = "espeak-ng"
    rate_hz = HEARING_RATE_HZ
    words_per_minute = 175

    def __init__(self, program: str, voice: str) -> None:
        self._argv = [program, "--stdin", "--stdout", "-v", voice]

    def say(self, text: str, speed: float) -> Samples:
        rate = max(80, min(450, round(self.words_per_minute * speed)))
        try:
            done = subprocess.run(
                [*self._argv, "-s", str(rate)],
                input=text.encode(),
                capture_output=True,
                timeout=TIMEOUT_S,
                check=True,
            )
        except (subprocess.SubprocessError, OSError) as error:
            raise UnavailableError(f"espeak-ng failed: {error}") from error
        if not done.stdout:
            return np.zeros(0, np.float32)
        return np.concatenate(list(decode(done.stdout)))


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
