"""Whisper on CTranslate2: windows of speech to words with times, several windows at once."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from preroll.errors import InputError, UnavailableError
from preroll.voice.agreement import Word
from preroll.voice.features import FRAMES_PER_S, HOP, log_mel
from preroll.voice.pcm import HEARING_RATE_HZ, Samples
from preroll.voice.utterance import Hypothesis
from preroll.voice.vocabulary import Vocabulary
from preroll.worker import forkserver_threads

WINDOWS_S = (10.0, 15.0, 20.0, 30.0)
"""Padded windows: the cost follows them; below 10 s the decoder of tiny.en loops on short clips."""
TOKENS_PER_S = 50
MAX_TOKENS = 448
PROMPT_TOKENS = 2
NEW_TOKENS_PER_S = 8
"""More than anyone speaks; a decoder that loops ends there."""
SPARE_TOKENS = 12

LOWEST_LOG_PROB = -100.0
"""In place of minus infinity, which JSON cannot say."""

INSTALL = "pip install ctranslate2"


@dataclass(frozen=True, slots=True)
class Window:
    """Audio of at most 30 s (mono, 16 kHz), the token ids that its transcript begins with, and
    those of what was said before it."""

    audio: Samples
    prefix_ids: tuple[int, ...] = ()
    before_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RecognizerSettings:
    """`compute_type`: CTranslate2's, such as int8 or float32. `threads`: for one batch of windows;
    `workers`: batches that are transcribed beside each other, with the weights in common."""

    threads: int = 1
    workers: int = 1
    compute_type: str = "int8"
    beam_size: int = 1


class Recognizer:
    """One loaded model. Any number of threads may use it; `workers` of them get on."""

    def __init__(self, folder: Path, settings: RecognizerSettings | None = None) -> None:
        self.settings = settings or RecognizerSettings()
        # numpy's BLAS, which makes the features, has a thread for each processor else, and they
        # spin after the work: the stage took twice the processor time.
        forkserver_threads.restore({"OPENBLAS_NUM_THREADS": str(self.settings.threads)})
        try:
            import ctranslate2
        except ImportError as error:
            raise UnavailableError(f"{error}; install it: {INSTALL}") from error
        self._arrays: Any = ctranslate2.StorageView
        self._model: Any = ctranslate2.models.Whisper(
            str(folder),
            device="cpu",
            compute_type=self.settings.compute_type,
            intra_threads=self.settings.threads,
            inter_threads=self.settings.workers,
        )
        self._vocabulary = Vocabulary.of(folder)
        self._start = self._vocabulary.number("<|startoftranscript|>")
        self._before = self._vocabulary.number("<|startofprev|>")
        self._end = self._vocabulary.number("<|endoftext|>")
        self._no_times = self._vocabulary.number("<|notimestamps|>")

    def recognize(self, windows: Sequence[Window]) -> list[Hypothesis]:
        """The words of each window after its prefix."""
        found: dict[int, Hypothesis] = {}
        sizes = [padded_s(window.audio.size / HEARING_RATE_HZ) for window in windows]
        for size in sorted(set(sizes)):
            at = [i for i, other in enumerate(sizes) if other == size]
            found.update(zip(at, self._same_size([windows[i] for i in at], size), strict=True))
        return [found[i] for i in range(len(windows))]

    def warm(self, window: Window) -> None:
        """Runs what a window runs, without the padding to 10 s: a fifth of its cost. The first
        real one takes 14 ms longer than the later ones, for its memory is new."""
        self._same_size([window], window.audio.size / HEARING_RATE_HZ)

    def _same_size(self, windows: list[Window], window_s: float) -> list[Hypothesis]:
        mel = np.stack([log_mel(window.audio, window_s) for window in windows])
        encoded = self._model.encode(self._arrays.from_array(mel), to_cpu=False)
        longest_s = max(window.audio.size for window in windows) / HEARING_RATE_HZ
        prompts = self._prompts(windows)
        results = self._model.generate(
            encoded,
            prompts,
            beam_size=self.settings.beam_size,
            max_length=max_length(longest_s, max(map(len, prompts)) - PROMPT_TOKENS),
            # Behind a whole transcript as the prefix, "nothing more" must be an answer.
            suppress_blank=False,
            return_scores=True,
            # A window with final words in it is speech; to ask costs as much as one more token.
            return_no_speech_prob=not all(window.prefix_ids for window in windows),
        )
        texts = [[i for i in result.sequences_ids[0] if i < self._end] for result in results]
        frames = [min(w.audio.size // HOP, round(window_s * FRAMES_PER_S)) for w in windows]
        alignments = self._align(encoded, texts, frames)
        return [
            Hypothesis(
                words=tuple(self._words(ids, len(window.prefix_ids), alignment)),
                no_speech_prob=float(result.no_speech_prob),
                mean_log_prob=max(LOWEST_LOG_PROB, float(result.scores[0])),
            )
            for window, result, ids, alignment in zip(
                windows, results, texts, alignments, strict=True
            )
        ]

    def _prompts(self, windows: list[Window]) -> list[list[int]]:
        """What was said before stands in front of the start, where CTranslate2 reads it at once
        (a token behind it costs a step), and takes as many tokens of it for each window."""
        before = min(len(window.before_ids) for window in windows)
        lead = [self._before] if before else []
        start = [self._start, self._no_times]
        return [
            [*lead, *w.before_ids[len(w.before_ids) - before :], *start, *w.prefix_ids]
            for w in windows
        ]

    def _align(self, encoded: Any, texts: list[list[int]], frames: list[int]) -> list[Any]:
        if not any(texts):
            return [None] * len(texts)
        return list(self._model.align(encoded, [self._start], texts, [max(2, n) for n in frames]))

    def _words(self, ids: list[int], skip: int, alignment: Any) -> list[Word]:
        """Groups tokens at the spaces that they begin with, and gives each group its time."""
        if not ids:
            return []
        times = _token_times(alignment.alignments, len(ids))
        words = []
        first = skip
        for i in range(skip + 1, len(ids) + 1):
            if i < len(ids) and not self._vocabulary.begins_word(ids[i]):
                continue
            group = tuple(ids[first:i])
            probability = float(np.mean(alignment.text_token_probs[first:i] or [0.0]))
            text = self._vocabulary.text(group)
            if text:
                words.append(Word(text, times[first], times[i], probability, group))
            first = i
        return words


def max_length(audio_s: float, prefix: int) -> int:
    """CTranslate2's limit that leaves room for what may be said in so much audio behind a prefix:
    it counts the prompt, and allows no more new tokens than half of the limit."""
    new = int(audio_s * NEW_TOKENS_PER_S) + SPARE_TOKENS
    return min(MAX_TOKENS, max(2 * new, PROMPT_TOKENS + prefix + new))


def padded_s(audio_s: float) -> float:
    """The window that holds so much audio. Raises InputError beyond the longest."""
    for window_s in WINDOWS_S:
        if audio_s <= window_s:
            return window_s
    raise InputError(f"{audio_s:.1f} s of audio in one window; {WINDOWS_S[-1]:g} s are allowed")


def _token_times(pairs: Sequence[tuple[int, int]], count: int) -> list[float]:
    """When each token begins, in seconds, and when the last ends: the path of the alignment
    enters a token's row at its time."""
    times = [0.0] * (count + 1)
    seen = -1
    for token, frame in pairs:
        if token > seen:
            for skipped in range(seen + 1, min(token, count) + 1):
                times[skipped] = frame / TOKENS_PER_S
            seen = token
    last = pairs[-1][1] / TOKENS_PER_S if pairs else 0.0
    for missing in range(seen + 1, count + 1):
        times[missing] = last
    return times


def find_model(model: str) -> Path:
    """The folder of a CTranslate2 model: a path, or `pkg:NAME/FOLDER` of an installed package,
    found without importing it. Raises InputError."""
    if not model.startswith("pkg:"):
        folder = Path(model)
    else:
        name, _, inner = model.removeprefix("pkg:").partition("/")
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"model {model!r}: the package {name!r} is not installed")
        folder = Path(next(iter(spec.submodule_search_locations))) / inner
    if not (folder / "model.bin").is_file():
        raise InputError(f"model {model!r}: there is no file {folder / 'model.bin'}")
    return folder
