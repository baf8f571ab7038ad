"""Transcribing speech while it is spoken: which audio to transcribe next, and what became final.

Pure: audio and transcripts go in, jobs and updates come out, and time is that of the samples.

1. Voice activity cuts the stream into utterances; what is silence costs nothing.
2. An open utterance is transcribed again whenever a step of new speech has come. Its final words
   are forced on the decoder, so that it writes only what is new.
3. A short silence after speech is transcribed at once (`early_s`): if it turns out to be the end,
   the last transcript is there when that is decided.
4. The end of an utterance settles its last words. Nothing that came before a `finish` is lost.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from preroll.voice.activity import Activity, ActivitySettings, Edge
from preroll.voice.agreement import Word, after, joined, plain, rest_after
from preroll.voice.guards import is_believable, without_loops
from preroll.voice.pcm import HEARING_RATE_HZ, Samples
from preroll.voice.silero import WINDOW
from preroll.voice.utterance import Hypothesis, Utterance

EPSILON_S = 1e-6
"""Times that came about in different ways differ by rounding."""


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Times in seconds. `step_s`: new speech that is worth another transcript. `early_s`: silence
    after which one is made in case it is the end; from `pause_s` of it on, nothing else is begun
    that this one would have to wait for. `tail_s`: silence after speech that a transcript gets to
    see. `least_s`: of audio that is worth the first transcript.
    `sure_s`: of audio that an utterance must hold before any of its words is final: the decoder
    makes whole sentences up from less, and makes them up twice. `trim_s`: a window longer than this
    loses its final words, but for those of its last `context_s`; `most_s`: none is longer.
    `deaf_s`: of speech behind the final words, at an end, that must have been a word.
    `whole_s`: an utterance of at most so much audio is transcribed anew at its end, all of it and
    without the final words forced on it: better, and for those who need the text only then.
    `edge_s`: a word that ends so close to the end of the audio may be half of one."""

    step_s: float = 0.1
    early_s: float = 0.16
    pause_s: float = 0.06
    tail_s: float = 0.25
    sure_s: float = 1.5
    trim_s: float = 3.0
    context_s: float = 1.2
    deaf_s: float = 0.4
    most_s: float = 27.0
    edge_s: float = 0.05
    whole_s: float = 0.0
    least_s: float = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One window to transcribe: mono 16 kHz audio, and the token ids that are already final."""

    utterance: int
    audio: Samples
    start_s: float
    until_s: float
    prefix_ids: tuple[int, ...]
    voiced_until_s: float
    before_ids: tuple[int, ...] = ()
    """The last tokens of what was said before the window."""
    num_final: int = 0
    """Words of the window that were final when it was made."""
    is_whole: bool = False
    """Whether it asks for the whole utterance anew."""
    is_end: bool = False
    """Whether it may be the utterance's last."""


@dataclass(frozen=True, slots=True)
class Update:
    """`partial`: the whole revisable tail, in place of the one before. `final`: words that follow
    the final ones before. `text` has the spaces that the model wrote, so final texts join as they
    are. `is_end`: the utterance is over with this message."""

    kind: Literal["partial", "final"]
    utterance: int
    text: str
    words: tuple[Word, ...] = ()
    is_end: bool = False
    whole: str | None = None
    """With `is_end`: the utterance's text as it was transcribed anew, where that was asked for."""


class LiveTranscript:
    """One stream. `vad` gives the probabilities of speech that samples complete."""

    def __init__(
        self,
        vad: Callable[[Samples], list[float]],
        settings: LiveSettings | None = None,
        activity: ActivitySettings | None = None,
    ) -> None:
        self.settings = settings or LiveSettings()
        self.activity = Activity(activity)
        self.utterances: deque[Utterance] = deque()
        self.now_s = 0.0
        self._vad = vad
        self._number = 0
        self._before: deque[Samples] = deque()
        self._before_samples = 0

    def push(self, samples: Samples) -> list[Edge]:
        """Takes the next samples (mono, 16 kHz) and tells where speech began or ended."""
        edges: list[Edge] = []
        # No more at once than what one probability stands for: one edge at most in each.
        for i in range(0, samples.size, WINDOW):
            edges += self._push(samples[i : i + WINDOW])
        return edges

    def _push(self, samples: Samples) -> list[Edge]:
        self.now_s += samples.size / HEARING_RATE_HZ
        if self.activity.is_speech:
            self.utterances[-1].push(samples)
        else:
            self._remember(samples)
        edges = list(self.activity.push(self._vad(samples)))
        for edge in edges:
            self._edge(edge)
        if self.activity.is_speech:
            self.utterances[-1].voiced_until_s = self.activity.voiced_until_s
        return edges

    def finish(self) -> list[Edge]:
        """The end of the stream, or of what the client wants now: every utterance is closed."""
        edges = list(self.activity.finish())
        for edge in edges:
            self._edge(edge)
        return edges

    def next_job(self, running: Sequence[Job] = (), *, ends_only: bool = False) -> Job | None:
        """What to transcribe now, the oldest utterance first; None while nothing is due.
        `running`: the jobs whose transcripts are still to come. `ends_only`: nothing but what may
        be the last of an utterance."""
        for utterance in self.utterances:
            asked = (job.until_s for job in running if job.utterance == utterance.number)
            until_s = self._due(utterance, max(asked, default=0.0))
            if until_s is not None:
                is_end = self._is_end(utterance, until_s)
                return self._job(utterance, until_s, is_end) if is_end or not ends_only else None
            if utterance.end_s is not None:
                return None
        return None

    def _job(self, utterance: Utterance, until_s: float, is_end: bool) -> Job:
        """An end is transcribed anew only while all of the utterance is still there."""
        is_all_there = until_s - utterance.first_s <= self.settings.whole_s
        is_whole = is_end and is_all_there and not utterance.is_shortened
        start_s = utterance.first_s if is_whole else utterance.start_s
        return Job(
            utterance=utterance.number,
            audio=utterance.audio(until_s, start_s),
            start_s=start_s,
            until_s=until_s,
            prefix_ids=() if is_whole else utterance.prefix_ids(),
            voiced_until_s=utterance.voiced_until_s,
            before_ids=() if is_whole else utterance.before_ids,
            num_final=len(utterance.agreement.committed),
            is_whole=is_whole,
            is_end=is_end,
        )

    def _is_end(self, utterance: Utterance, until_s: float) -> bool:
        is_all = utterance.end_s is not None and until_s >= utterance.audio_until_s
        return is_all or until_s >= utterance.voiced_until_s + self.settings.early_s - EPSILON_S

    def apply(self, job: Job, heard: Hypothesis) -> list[Update]:
        """Takes the transcript of a job. One that a later one has overtaken, or that does not go
        on from what became final while it was made, tells nothing: the audio is due again."""
        utterance = next((u for u in self.utterances if u.number == job.utterance), None)
        if utterance is None or job.until_s <= utterance.heard_until_s:
            return []
        words = self._believed(utterance, job, heard)
        if job.is_whole:
            utterance.heard_until_s = job.until_s
            utterance.whole = words
            utterance.whole_voiced_s = job.voiced_until_s
            return self.settle()
        if job.start_s != utterance.start_s:
            return []
        rest = after(words, utterance.agreement.committed[job.num_final :])
        if rest is None:
            return []
        if not plain(joined(rest)) and self._is_deaf(utterance, job):
            utterance.drop_until(utterance.agreement.committed[-1].end_s)
            return []
        words = rest
        utterance.heard_until_s = job.until_s
        before = list(utterance.agreement.tail)
        updates = []
        agreed = utterance.agreement.update(words, job.until_s - self._edge_s(job))
        if agreed:
            updates.append(_final(utterance, agreed))
        if agreed or utterance.agreement.tail != before:
            tail = utterance.agreement.tail
            updates.append(Update("partial", utterance.number, joined(tail), tuple(tail)))
        updates += self._shorten(utterance)
        return updates + self.settle()

    def likely_text(self) -> str | None:
        """What the utterance will have been if the pause that it is in turns out to be its end:
        its text as a whole, once that was transcribed; None before, and when speech went on."""
        if len(self.utterances) != 1:
            return None
        return self.utterances[0].whole_text

    def settle(self) -> list[Update]:
        """Ends the oldest utterances that are over and whose last transcript is there."""
        updates = []
        while self.utterances:
            utterance = self.utterances[0]
            if utterance.end_s is None or self._due(utterance) is not None:
                break
            words, whole = utterance.agreement.settle(), utterance.whole_text
            if whole is not None:
                words = rest_after(utterance.whole, utterance.final) or words
            updates.append(replace(_final(utterance, words), is_end=True, whole=whole))
            self.utterances.popleft()
        return updates

    def give_up(self, job: Job) -> list[Update]:
        """For a job that failed for good: its audio counts as heard, and no word is invented."""
        updates = []
        for utterance in self.utterances:
            if utterance.number == job.utterance:
                utterance.heard_until_s = max(utterance.heard_until_s, job.until_s)
                updates = self._shorten(utterance)
        return updates + self.settle()

    def _due(self, utterance: Utterance, asked_s: float = 0.0) -> float | None:
        """Until when the utterance's audio should be transcribed now, if it already is, or is
        being, until `asked_s`."""
        settings = self.settings
        heard_s = max(utterance.heard_until_s, asked_s)
        end_s = utterance.voiced_until_s + settings.tail_s
        until_s = min(end_s, utterance.audio_until_s, utterance.start_s + settings.most_s)
        if utterance.end_s is not None:
            is_heard = heard_s >= min(
                utterance.voiced_until_s + settings.early_s - EPSILON_S, utterance.audio_until_s
            )
            return None if is_heard and heard_s else until_s
        if until_s - utterance.start_s < settings.least_s:
            return None
        if heard_s >= utterance.voiced_until_s + settings.early_s - EPSILON_S:
            return None
        silence_s = self.now_s - utterance.voiced_until_s
        if settings.pause_s <= silence_s < settings.early_s:
            return None
        is_step = until_s - max(heard_s, utterance.start_s) >= settings.step_s
        return until_s if is_step or silence_s >= settings.early_s else None

    def _edge_s(self, job: Job) -> float:
        """None of a word is cut off where the audio goes on in silence."""
        if job.until_s - job.start_s < self.settings.sure_s and not job.before_ids:
            return math.inf
        return -math.inf if self._is_quiet(job) else self.settings.edge_s

    def _is_deaf(self, utterance: Utterance, job: Job) -> bool:
        """Whether speech goes on where the decoder, with the final words forced on it, has nothing
        to add: some words look like the end of a sentence. It hears the rest without them."""
        final = utterance.agreement.committed
        rest_s = job.voiced_until_s - final[-1].end_s if final else 0.0
        return self._is_quiet(job) and rest_s >= self.settings.deaf_s

    def _is_quiet(self, job: Job) -> bool:
        """Whether silence follows its speech: no word is cut off."""
        return job.until_s >= job.voiced_until_s + self.settings.early_s - EPSILON_S

    def _believed(self, utterance: Utterance, job: Job, heard: Hypothesis) -> list[Word]:
        shifted = [
            replace(w, start_s=w.start_s + job.start_s, end_s=w.end_s + job.start_s)
            for w in heard.words
        ]
        text = joined(shifted).strip()
        if not plain(text):
            return shifted if utterance.agreement.committed else []
        speech_s = job.until_s - job.start_s
        if not is_believable(text, speech_s, heard.no_speech_prob, heard.mean_log_prob):
            return []
        return shifted[: len(without_loops(text).split())]

    def _shorten(self, utterance: Utterance) -> list[Update]:
        settings = self.settings
        heard_s = utterance.heard_until_s - utterance.start_s
        if heard_s >= settings.most_s - EPSILON_S:
            return self._cut(utterance)
        # In a pause the last transcript may be on its way, and it is of this window.
        early_s = utterance.voiced_until_s + settings.early_s - EPSILON_S
        is_awaited = self.now_s >= early_s and utterance.heard_until_s < early_s
        if heard_s >= settings.trim_s and utterance.end_s is None and not is_awaited:
            before_s = utterance.heard_until_s - settings.context_s
            leaving = [w for w in utterance.agreement.committed if w.end_s <= before_s]
            if leaving:
                utterance.drop_until(leaving[-1].end_s)
        return []

    def _cut(self, utterance: Utterance) -> list[Update]:
        """Of the longest window all words become final, but for the last, which may be half of
        one: it begins the next window."""
        tail = utterance.agreement.tail
        at_s = tail[-1].start_s if len(tail) > 1 else utterance.start_s
        is_late = at_s - utterance.start_s >= self.settings.most_s / 2
        words = utterance.agreement.settle(len(tail) - 1 if is_late else len(tail))
        utterance.drop_until(at_s if is_late else utterance.heard_until_s)
        return [_final(utterance, words)] if words else []

    def _edge(self, edge: Edge) -> None:
        if edge.kind == "stop":
            self.utterances[-1].end_s = edge.at_s
            return
        self._number += 1
        start_s = max(0.0, edge.at_s - self.activity.settings.pad_s)
        held = np.concatenate(self._before) if self._before else np.zeros(0, np.float32)
        held_from_s = self.now_s - held.size / HEARING_RATE_HZ
        skip = max(0, round((start_s - held_from_s) * HEARING_RATE_HZ))
        utterance = Utterance(
            self._number,
            held_from_s + skip / HEARING_RATE_HZ,
            self.activity.voiced_until_s,
            self.settings.whole_s,
        )
        utterance.push(held[skip:].copy())
        self._before.clear()
        self._before_samples = 0
        self.utterances.append(utterance)

    def _remember(self, samples: Samples) -> None:
        """Keeps what an utterance that begins now would need of the past."""
        self._before.append(samples)
        self._before_samples += samples.size
        settings = self.activity.settings
        keep = round((settings.pad_s + settings.speech_s + 0.1) * HEARING_RATE_HZ)
        while self._before_samples - self._before[0].size >= keep:
            self._before_samples -= self._before.popleft().size


def _final(utterance: Utterance, words: list[Word]) -> Update:
    if not utterance.is_shortened:  # else it is not transcribed anew: an hour of it stays small
        utterance.final += words
    return Update("final", utterance.number, joined(words), tuple(words))
