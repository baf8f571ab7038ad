"""Live transcription without a model: scripted voice activity and a recognizer that knows the
words of the audio from its marks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import recordings
import sounds
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preroll.voice.activity import Activity, ActivitySettings
from preroll.voice.agreement import Word
from preroll.voice.live import Job, LiveSettings, LiveTranscript, Update
from preroll.voice.segments import MOST_S, Segmenter
from preroll.voice.silero import WINDOW, WINDOW_S
from preroll.voice.utterance import Hypothesis

RATE = 16_000
WORD_S = 0.32
"""Every word of a marked stream lasts ten windows; sample values say which word it is."""


class LoudVad:
    """Speech is what is loud."""

    def __init__(self) -> None:
        self.rest = np.zeros(0, np.float32)

    def __call__(self, samples: sounds.Samples) -> list[float]:
        data = np.concatenate([self.rest, samples])
        count = data.size // WINDOW
        self.rest = data[count * WINDOW :]
        return [float(np.abs(w).max() > 0.01) for w in data[: count * WINDOW].reshape(-1, WINDOW)]


def marked(numbers: list[int]) -> sounds.Samples:
    """A word per number; 0 is silence of the same length."""
    size = round(WORD_S * RATE)
    return np.concatenate([np.full(size, n / 1000, np.float32) for n in numbers] or [np.zeros(0)])


def hear(job: Job) -> Hypothesis:
    """Whole words of the window after the prefix: a word is heard once all of it is there."""
    values = np.round(job.audio * 1000).astype(int)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], values, [0]])))
    words = []
    for start, end in pairwise(edges):
        number = int(values[start])
        if number and end - start >= WORD_S * RATE * 0.9:
            words.append(Word(word(number), start / RATE, end / RATE, 1.0, (number,)))
    skip = len(job.prefix_ids)
    assert tuple(i for w in words[:skip] for i in w.token_ids) == job.prefix_ids
    return Hypothesis(tuple(words[skip:]), 0.0, -0.1)


def run(
    audio: sounds.Samples, step: int = 320, busy_steps: int = 3, at_once: int = 1, skew: int = 0
) -> tuple[list[Update], LiveTranscript]:
    """Streams the audio; a transcript takes `busy_steps` steps to make, every second one `skew`
    more, and `at_once` are made beside each other."""
    live = LiveTranscript(LoudVad())
    updates: list[Update] = []
    running: dict[Job, int] = {}
    begun = 0
    for i in range(0, audio.size, step):
        live.push(audio[i : i + step])
        for job in [job for job, until in running.items() if until <= i // step]:
            del running[job]
            updates += live.apply(job, hear(job))
        updates += live.settle()
        while len(running) < at_once and (job := live.next_job(list(running))) is not None:
            running[job] = i // step + busy_steps + skew * (begun % 2)
            begun += 1
    for job in running:
        updates += live.apply(job, hear(job))
    live.finish()
    while (job := live.next_job()) is not None:
        updates += live.apply(job, hear(job))
    return updates + live.settle(), live


def text_of(updates: list[Update]) -> str:
    return "".join(u.text for u in updates if u.kind == "final")


def expected(numbers: list[int]) -> str:
    return "".join(word(n) for n in numbers if n)


def word(number: int) -> str:
    """Words as different as those of a language: long text that repeats itself is not believed."""
    return f" {number * 2654435761 % 2**24:x}"


@given(
    groups=st.lists(
        st.lists(st.integers(20, 999), min_size=1, max_size=12, unique=True), max_size=4
    ),
    step=st.sampled_from([160, 320, 512, 1_000, 7_777]),
    busy=st.integers(1, 30),
    at_once=st.integers(1, 3),
    skew=st.sampled_from([0, 0, 1, 40]),
)
@settings(max_examples=100, deadline=None)
def test_every_word_is_final_once_and_in_order(
    groups: list[list[int]], step: int, busy: int, at_once: int, skew: int
) -> None:
    numbers = [n for group in groups for n in [0, 0, *group, 0, 0]]
    numbers = [n for i, n in enumerate(numbers) if not n or n != (numbers[i - 1] if i else 0)]
    updates, live = run(marked(numbers), step, busy, at_once, skew)
    assert text_of(updates) == expected(numbers)
    assert not live.utterances


@pytest.mark.parametrize("cut", [0.0, 0.1, 0.31])
def test_the_last_word_is_not_lost_when_the_stream_ends_in_it(cut: float) -> None:
    audio = marked([0, 21, 22, 23])
    audio = np.concatenate([audio, np.zeros(round(cut * RATE), np.float32)])
    assert text_of(run(audio)[0]) == expected([21, 22, 23])


def test_words_come_before_the_speech_ends_and_partials_before_them() -> None:
    updates, _ = run(marked([0, *range(20, 35), 0, 0, 0]))
    kinds = [u.kind for u in updates]
    ends = [i for i, u in enumerate(updates) if u.is_end]
    assert kinds.index("partial") < kinds.index("final") < ends[0]
    assert len(ends) == 1


def test_silence_and_noise_below_the_gate_cost_nothing() -> None:
    live = LiveTranscript(LoudVad())
    live.push(sounds.noise(30.0, level=0.001))
    assert live.next_job() is None
    assert not live.utterances


def test_an_hour_in_one_breath_is_held_in_flat_memory() -> None:
    live = LiveTranscript(LoudVad(), LiveSettings(step_s=1.0))
    words = marked([21, 22, 23, 24, 25])
    most = finals = 0
    for _ in range(round(3600 / (5 * WORD_S))):
        live.push(words)
        while (job := live.next_job()) is not None:
            assert job.audio.size <= 30 * RATE
            finals += sum(u.kind == "final" for u in live.apply(job, hear_anew(job)))
        most = max(most, sum(u.audio(u.audio_until_s).nbytes for u in live.utterances))
    assert most < 4 * RATE * 31
    assert finals > 1_000


def hear_anew(job: Job) -> Hypothesis:
    """As `hear`, for words that come again and again: the prefix is taken on trust."""
    values = np.round(job.audio * 1000).astype(int)
    starts = np.flatnonzero(np.diff(np.concatenate([[0], values])))
    words = [
        Word(
            f" w{values[s]}-{(job.start_s + s / RATE):.2f}", s / RATE, s / RATE + WORD_S, 1.0, (1,)
        )
        for s in starts
    ]
    return Hypothesis(tuple(words[len(job.prefix_ids) :]), 0.0, -0.1)


def test_a_recognizer_that_fails_for_good_does_not_hold_up_what_comes_after() -> None:
    live = LiveTranscript(LoudVad())
    live.push(marked([0, 21, 22, 0, 0]))
    live.finish()
    job = live.next_job()
    assert job is not None
    updates = live.give_up(job)
    assert updates[-1].is_end
    live.push(marked([0, 31, 0, 0]))
    live.finish()
    job = live.next_job()
    assert job is not None
    assert text_of(live.apply(job, hear(job)) + live.settle()) == word(31)


def test_invented_words_are_neither_shown_nor_kept() -> None:
    live = LiveTranscript(LoudVad())
    live.push(sounds.noise(2.0, level=0.2))
    live.finish()
    job = live.next_job()
    assert job is not None
    made_up = Hypothesis((Word(" Thank", 0, 1), Word(" you.", 1, 2)), 0.9, -1.2)
    updates = live.apply(job, made_up) + live.settle()
    assert text_of(updates) == ""
    assert updates[-1].is_end


@given(st.lists(st.booleans(), max_size=200))
def test_edges_of_speech_alternate_and_do_not_go_back_in_time(speech: list[bool]) -> None:
    activity = Activity(ActivitySettings(silence_s=0.2))
    edges = [*activity.push([float(s) for s in speech]), *activity.finish()]
    assert [e.kind for e in edges] == ["start", "stop"] * (len(edges) // 2)
    times = [e.at_s for e in edges]
    assert times == sorted(times)
    assert all(e.at_s <= e.known_s for e in edges)


def test_speech_ends_only_after_enough_silence() -> None:
    activity = Activity()
    edges = list(activity.push([1.0] * 10 + [0.0] * 10 + [1.0] * 10 + [0.0] * 30))
    assert [e.kind for e in edges] == ["start", "stop"]
    assert edges[1].at_s == pytest.approx(30 * WINDOW_S)
    assert edges[1].known_s - edges[1].at_s == pytest.approx(0.512)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=10), st.integers(100, 20_000))
@example([0, 280], 100)  # speech that ends with the longest window
@settings(max_examples=40, deadline=None)
def test_segments_cover_all_speech_once_and_fit_a_window(lengths: list[int], step: int) -> None:
    """Lengths in tenths of a second, speech and silence in turn."""
    parts = [np.full(n * 1_600, 0.5 if i % 2 else 0.0, np.float32) for i, n in enumerate(lengths)]
    audio = np.concatenate(parts)
    segmenter = Segmenter(LoudVad())
    found = [s for i in range(0, audio.size, step) for s in segmenter.push(audio[i : i + step])]
    found += segmenter.finish()
    covered = np.zeros(audio.size + 2 * WINDOW, bool)
    for segment in found:
        start = round(segment.start_s * RATE)
        assert segment.audio.size <= (MOST_S + 1) * RATE
        assert not covered[start : start + segment.audio.size].any()
        covered[start : start + segment.audio.size] = True
    speech = audio > 0.1
    assert covered[: audio.size][speech].all()


def test_a_step_of_new_speech_is_waited_for() -> None:
    live = LiveTranscript(LoudVad(), LiveSettings(step_s=0.5))
    live.push(marked([0, 21, 22, 23]))
    assert live.next_job() is not None
    job = live.next_job()
    assert job is not None
    live.apply(job, hear(job))
    live.push(marked([24])[: round(0.2 * RATE)])
    assert live.next_job() is None
    live.push(marked([24, 25]))
    assert live.next_job() is not None


@pytest.mark.parametrize(("words", "is_whole"), [(9, True), (25, True), (40, False)])
def test_an_end_is_heard_anew_where_the_whole_is_asked_for(words: int, is_whole: bool) -> None:
    """Whatever has left the window by then, unless it was longer than what is kept: 10 s."""
    live = LiveTranscript(LoudVad(), LiveSettings(whole_s=10.0))
    audio = marked([0, *range(21, 21 + words), 0, 0, 0])
    updates: list[Update] = []
    for i in range(0, audio.size, 320):
        live.push(audio[i : i + 320])
        while (job := live.next_job()) is not None:
            # A partial transcript errs; the last one, which has no words forced on it, does not.
            heard = hear(job)
            if not job.is_whole:
                wrong = tuple(Word(" x", w.start_s, w.end_s, 1.0, w.token_ids) for w in heard.words)
                heard = Hypothesis(wrong, 0.0, -0.1)
            updates += live.apply(job, heard)
        updates += live.settle()
    ends = [u for u in updates if u.is_end]
    assert [e.whole for e in ends] == [expected(list(range(21, 21 + words))) if is_whole else None]


def test_a_pause_has_a_likely_text_until_speech_goes_on() -> None:
    live = LiveTranscript(LoudVad(), LiveSettings(whole_s=10.0))
    likely: list[str | None] = []

    def push(numbers: list[int], seconds: float) -> None:
        audio = marked(numbers)[: round(seconds * RATE)]
        for i in range(0, audio.size, 320):
            live.push(audio[i : i + 320])
            while (job := live.next_job()) is not None:
                live.apply(job, hear(job))
            live.settle()
            if likely[-1:] != [live.likely_text()]:
                likely.append(live.likely_text())

    push([0, 21, 22, 23], 2.0)
    push([0, 0], 0.4)
    push([24, 25], 1.0)
    push([0, 0], 1.0)
    # Once it is decided, it is what was said, and nothing is likely any more.
    assert likely == [None, expected([21, 22, 23]), None, expected([21, 22, 23, 24, 25]), None]


def test_nothing_is_begun_that_the_end_would_have_to_wait_for() -> None:
    live = LiveTranscript(LoudVad(), LiveSettings(step_s=0.02))
    audio = marked([0, 21, 22, 0, 0])
    silences = []
    for i in range(0, audio.size, 320):
        live.push(audio[i : i + 320])
        job = live.next_job()
        if job is not None:
            silences.append(live.now_s - job.voiced_until_s)
            live.apply(job, hear(job))
    settings = live.settings
    assert not [s for s in silences if settings.pause_s <= s < settings.early_s]
    assert silences[-1] >= settings.early_s and len(silences) > 10


LONG = [0, *(20 + i % 900 for i in range(250)), 0, 0]
"""80 s of speech without a pause."""


def test_speech_that_came_at_once_is_heard_whole_in_windows_that_fit() -> None:
    """A client that is faster than real time, or a stage that was away for half a minute."""
    live = LiveTranscript(LoudVad())
    live.push(marked(LONG))
    live.finish()
    updates: list[Update] = []
    while (job := live.next_job()) is not None:
        assert job.audio.size <= LiveSettings().most_s * RATE
        updates += live.apply(job, hear_what_is_there(job))
    said = [u for u in updates if u.kind == "final"]
    assert text_of(updates) == expected(LONG)
    assert [u.is_end for u in said] == [*[False] * (len(said) - 1), True]
    assert not live.utterances


def hear_what_is_there(job: Job) -> Hypothesis:
    """As `hear`; a word whose beginning is cut off is none."""
    heard = hear(job)
    cut = heard.words and heard.words[0].end_s - heard.words[0].start_s < WORD_S * 0.95
    return Hypothesis(heard.words[1:] if cut else heard.words, 0.0, -0.1)


def test_a_stage_that_stays_away_ends_the_utterance_all_the_same() -> None:
    live = LiveTranscript(LoudVad())
    live.push(marked(LONG))
    live.finish()
    updates: list[Update] = []
    for _ in range(10):
        if (job := live.next_job()) is not None:
            updates += live.give_up(job)
    assert not live.utterances
    assert [u.is_end for u in updates] == [True]


def test_what_is_made_up_twice_of_a_short_window_is_not_final() -> None:
    live = LiveTranscript(LoudVad(), LiveSettings(sure_s=1.0))
    made_up = Hypothesis((Word(" Thank", 0.1, 0.2), Word(" you", 0.2, 0.3)), 0.0, -0.1)
    updates: list[Update] = []
    for numbers in ([0, 21], [22], [23]):
        live.push(marked(numbers))
        job = live.next_job()
        assert job is not None
        short = job.until_s - job.start_s < 1.0
        updates += live.apply(job, made_up if short else hear(job))
    assert text_of(updates) == ""
    assert any(u.text == " Thank you" for u in updates)
    live.push(marked([24]))
    job = live.next_job()
    assert job is not None
    assert text_of(live.apply(job, hear(job))).startswith(word(21))


def test_a_long_window_keeps_the_last_final_words_and_goes_on_from_those_before() -> None:
    numbers = [0, *range(20, 70)]
    live = LiveTranscript(LoudVad())
    audio = marked(numbers)
    prefixes, windows = [], []
    updates: list[Update] = []
    for i in range(0, audio.size, 1_600):
        live.push(audio[i : i + 1_600])
        if (job := live.next_job()) is not None:
            said = (*job.before_ids, *job.prefix_ids)
            num_said = len(text_of(updates).split())
            assert said == tuple(range(20, 70))[:num_said][-len(said) :]
            assert len(job.before_ids) == min(20, num_said - len(job.prefix_ids))
            prefixes.append(len(job.prefix_ids))
            windows.append(job.until_s - job.start_s)
            updates += live.apply(job, hear(job))
    settings = LiveSettings()
    assert max(windows) <= settings.trim_s + 0.5
    first = next(i for i, (a, b) in enumerate(pairwise(windows), 1) if b < a)
    # More than a second of words of a third of a second, not one of them lost or said again.
    assert windows[first] >= settings.context_s
    assert prefixes[first] >= settings.context_s / WORD_S - 3


def test_word_errors_are_the_least_that_explain_what_was_heard() -> None:
    assert recordings.errors("a b c", "a x c d") == (2, 3)
    assert recordings.errors("cold hearted", "coldhearted") == (2, 2)
