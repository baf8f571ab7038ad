"""A Piper voice on ONNX Runtime; part by part where its graph was taken apart by `unpacked`.

Piper is under the GPL: it is an optional extra that this project never imports but here, inside a
stage, which is a process of its own.

Its network writes the whole sentence as frames of a latent, and a decoder makes audio of them. The
decoder is convolutions only: a part of the frames, with a few more at each side, gives the samples
that the whole would have given. So the first part can be heard before the rest is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from preroll.errors import InputError
from preroll.voice.pcm import Samples
from preroll.voice.synthesizer import Part

FIRST_FRAMES = 30
"""About a third of a second: what is made next is ready before it has been played."""
FRAMES = 100
KEY = "preroll"
"""Of the voice's settings: what `unpacked` has measured."""
AGAIN = "take the voice apart again: python -m preroll.voice.unpacked MODEL FOLDER"


def decoder_of(model: Path) -> Path:
    return model.with_name(f"{model.stem}.decoder{model.suffix}")


def open_session(model: Path, threads: int) -> Any:
    from preroll.voice import onnx  # before Piper: it imports ONNX Runtime too

    options = onnx.Runtime.SessionOptions()
    # Measured on this kind of model: rewriting the graph takes longer than loading it, and a
    # sentence is said no faster afterwards.
    options.graph_optimization_level = onnx.Runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return Stoppable(onnx.session(model, threads, options), onnx.Runtime.RunOptions)


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


@dataclass(frozen=True, slots=True)
class Decoder:
    """Frames to samples. `context`: frames beside a part that its samples depend on; `gain`: what
    brings the voice to full level, as the whole of a sentence is not there to be looked at."""

    session: Any
    context: int = 0
    gain: float = 1.0

    def parts(self, latent: Samples) -> Iterator[Part]:
        """`latent`: channels × frames."""
        frames, start, count = latent.shape[1], 0, FIRST_FRAMES
        while start < frames:
            end = min(frames, start + count)
            samples = self.samples(latent, start, end)
            of = samples.size // (end - start) * frames if start == 0 else 0
            yield Part(np.clip(self.gain * samples, -1.0, 1.0).astype(np.float32), of)
            start, count = end, FRAMES

    def samples(self, latent: Samples, start: int, end: int) -> Samples:
        """Of the frames from `start` to before `end`."""
        low, high = max(0, start - self.context), min(latent.shape[1], end + self.context)
        (name,) = (given.name for given in self.session.get_inputs())
        audio = self.session.run(None, {name: latent[None, :, low:high]})[0].ravel()
        hop = audio.size // (high - low)
        made: Samples = audio[(start - low) * hop : (end - low) * hop]
        return made


class Piper:
    """A voice, whole or taken apart. See `Synthesizer`."""

    name = "piper"

    def __init__(self, model: Path, threads: int) -> None:
        self._graph = open_session(model, threads)

        from piper import PiperVoice, SynthesisConfig  # isort: skip
        from piper.config import PiperConfig  # isort: skip

        settings = json.loads(Path(f"{model}.json").read_text())
        config = PiperConfig.from_dict(settings)
        self._voice: Any = PiperVoice(session=self._graph, config=config)
        self._settings: Any = SynthesisConfig
        self.decoder: Decoder | None = None
        if decoder_of(model).is_file():
            session = open_session(decoder_of(model), threads)
            if KEY not in settings:
                raise InputError(f"{model}.json does not describe the decoder beside it: {AGAIN}")
            self.decoder = Decoder(session, **settings[KEY])
        self.rate_hz = int(config.sample_rate)

    def parts(self, text: str, speed: float) -> Iterator[Part]:
        config = self._settings(length_scale=1.0 / speed)
        if self.decoder is None:
            for chunk in self._voice.synthesize(text, syn_config=config):
                samples = chunk.audio_float_array.astype(np.float32)
                yield Part(samples, samples.size)
            return
        for share, latent in self.latents(text, config):
            for part in self.decoder.parts(latent):
                yield Part(part.samples, round(part.of / share))

    def latents(self, text: str, config: Any = None) -> Iterator[tuple[float, Samples]]:
        """Of each sentence, channels × frames: the first half of a voice that is taken apart; and
        its share of the text, by its phonemes."""
        sentences = [self._voice.phonemes_to_ids(s) for s in self._voice.phonemize(text) if s]
        for ids in sentences:
            # Named for a whole graph: here it is what the first half of it gives.
            found = self._voice.phoneme_ids_to_audio(ids, config)
            yield len(ids) / sum(map(len, sentences)), found.reshape(found.shape[0], -1)

    def stop(self) -> None:
        self._graph.stop()
        if self.decoder is not None:
            self.decoder.session.stop()
