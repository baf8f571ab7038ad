"""A turn transcribed anew as a whole at its end: all of it, and in its final words too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sounds
from hypothesis import given
from hypothesis import strategies as st
from test_voice_live import LoudVad, expected, hear, marked, text_of

from preroll.voice.agreement import Word, joined, rest_after
from preroll.voice.live import LiveSettings, LiveTranscript, Update

SETTINGS = LiveSettings(whole_s=10.0)


def told(audio: sounds.Samples, *, ends_only: bool = False) -> list[Update]:
    """All updates of a stream whose transcripts take no time."""
    live = LiveTranscript(LoudVad(), SETTINGS)
    updates: list[Update] = []
    for i in range(0, audio.size, 320):
        live.push(audio[i : i + 320])
        while (job := live.next_job(ends_only=ends_only)) is not None:
            updates += live.apply(job, hear(job))
        updates += live.settle()
    return updates


def test_what_was_said_after_a_pause_is_not_left_out_of_a_long_turn() -> None:
    """The pause made a whole of it, and at the end too much audio was there for another one."""
    before, behind = list(range(21, 41)), list(range(41, 61))
    updates = told(marked([0, *before, 0, *behind, 0, 0, 0]))
    (end,) = [u for u in updates if u.is_end]
    assert end.whole is None
    assert text_of(updates) == expected([*before, *behind])


@pytest.mark.parametrize("count", [1, 4, 20])
def test_the_final_words_are_there_when_none_was_shown_before(count: int) -> None:
    spoken = list(range(21, 21 + count))
    updates = told(marked([0, *spoken, 0, 0, 0]), ends_only=True)
    assert text_of(updates) == expected(spoken)


def test_the_final_words_are_there_when_the_end_has_overtaken_them() -> None:
    live = LiveTranscript(LoudVad(), SETTINGS)
    spoken = list(range(21, 31))
    updates: list[Update] = []
    for some in ([0, *spoken[:6]], spoken[6:7]):
        live.push(marked(some))
        job = live.next_job()
        assert job is not None
        updates += live.apply(job, hear(job))
    assert text_of(updates) == expected(spoken[:6])
    live.push(marked(spoken[7:8]))
    late = live.next_job()
    assert late is not None
    live.push(marked([*spoken[8:], 0, 0, 0]))
    end = live.next_job([late], ends_only=True)
    assert end is not None
    assert end.is_end
    updates += live.apply(end, hear(end))
    updates += live.apply(late, hear(late))
    assert text_of(updates) == expected(spoken)
    assert not live.utterances


def test_a_speech_without_a_pause_keeps_only_what_a_whole_may_need() -> None:
    live = LiveTranscript(LoudVad(), SETTINGS)
    audio = marked([0, *range(21, 271)])
    for i in range(0, audio.size, 1_600):
        live.push(audio[i : i + 1_600])
        while (job := live.next_job()) is not None:
            live.apply(job, hear(job))
    assert 0 < len(live.utterances[0].final) < 40, "of 250 words"


def words(text: str) -> list[Word]:
    return [Word(f" {word}", i, i + 1) for i, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("before", "whole", "rest"),
    [
        ("", "I saw her cat.", "I saw her cat."),
        ("I saw", "I saw her cat.", "her cat."),
        ("I saw he", "I saw her cat.", "cat."),
        ("i SAW,", "I saw her cat.", "her cat."),
        ("Eye saw her", "I saw her cat.", "cat."),
        ("I saw her cat", "I saw her cat.", ""),
        ("I saw the old cat", "I saw her.", ""),
        ("no no", "no no no", "no"),
        ("something else", "I saw her cat.", ""),
        ("I saw", "", ""),
    ],
)
def test_the_rest_follows_the_last_word_that_both_transcripts_have(
    before: str, whole: str, rest: str
) -> None:
    assert joined(rest_after(words(whole), words(before))).strip() == rest


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.integers(0, 12))
def test_the_rest_behind_a_beginning_is_what_is_left(spoken: Sequence[str], count: int) -> None:
    whole = words(" ".join(spoken))
    assert rest_after(whole, whole[:count]) == whole[count:]
