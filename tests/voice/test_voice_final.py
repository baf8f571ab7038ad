"""When a word is final: what two transcripts agree on, in whatever order they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import sounds
from test_voice_live import RATE, WORD_S, LoudVad, expected, hear, marked, text_of

from preroll.voice.agreement import Agreement, Word, joined
from preroll.voice.live import Job, LiveTranscript, Update
from preroll.voice.utterance import Hypothesis


def told(audio: sounds.Samples, heard: Callable[[Job], Hypothesis]) -> list[Update]:
    """All updates of a stream whose transcripts take no time."""
    live = LiveTranscript(LoudVad())
    updates: list[Update] = []
    for i in range(0, audio.size, 320):
        live.push(audio[i : i + 320])
        while (job := live.next_job()) is not None:
            updates += live.apply(job, heard(job))
        updates += live.settle()
    return updates


def test_a_final_word_is_forced_on_the_next_transcript() -> None:
    agreement = Agreement()
    first = [Word(" I", 0, 1, 1.0, (7,)), Word(" saw", 1, 2, 1.0, (8,))]
    assert agreement.update(first) == []
    assert joined(agreement.update([first[0], Word(" so", 1, 2)])) == " I"
    assert joined(agreement.update([Word(" so,", 1, 2), Word(" far", 2, 3)])) == " so,"
    assert joined(agreement.settle()) == " far"
    assert joined(agreement.committed) == " I so, far"


def beside() -> tuple[LiveTranscript, Job, Job]:
    """Two jobs that are made at once, a word apart; the first will make words final."""
    live = LiveTranscript(LoudVad())
    audio, size = marked([0, *range(21, 29)]), round(WORD_S * RATE)
    live.push(audio[: -2 * size])
    job = live.next_job()
    assert job is not None
    live.apply(job, hear(job))
    live.push(audio[-2 * size : -size])
    first = live.next_job()
    assert first is not None
    live.push(audio[-size:])
    second = live.next_job([first])
    assert second is not None
    assert second.until_s > first.until_s
    return live, first, second


def test_a_transcript_that_a_later_one_has_overtaken_tells_nothing() -> None:
    live, first, second = beside()
    live.apply(second, hear(second))
    utterance = live.utterances[0]
    before = list(utterance.agreement.tail), list(utterance.agreement.committed)
    assert live.apply(first, hear(first)) == []
    assert (utterance.agreement.tail, utterance.agreement.committed) == before
    live.give_up(first)
    assert utterance.heard_until_s == second.until_s


def test_a_transcript_that_contradicts_what_became_final_beside_it_tells_nothing() -> None:
    live, first, second = beside()
    assert text_of(live.apply(first, hear(first)))
    words = tuple(replace(w, text=f" not{w.text[1:]}") for w in hear(second).words)
    assert live.apply(second, Hypothesis(words, 0.0, -0.1)) == []
    again = live.next_job()
    assert again is not None
    assert again.num_final > second.num_final


def test_the_window_does_not_move_under_what_may_be_the_last_transcript() -> None:
    live = LiveTranscript(LoudVad())
    audio, size = marked([0, *range(21, 35), 0]), round(WORD_S * RATE)
    live.push(audio[: -3 * size])
    job = live.next_job()
    assert job is not None
    live.apply(job, hear(job))
    live.push(audio[-3 * size : -2 * size])
    words = live.next_job()
    assert words is not None
    live.push(audio[-2 * size :])
    end = live.next_job([words], ends_only=True)
    assert end is not None and end.is_end
    updates = live.apply(words, hear(words))
    assert len(text_of(updates).split()) > 5
    updates += live.apply(end, hear(end))
    assert live.next_job() is None, "it is not made again"
    live.finish()
    assert text_of(updates + live.settle()) == expected(list(range(21, 35)))


def test_a_window_moves_on_although_all_transcripts_are_made_in_pauses() -> None:
    live = LiveTranscript(LoudVad())
    phrases = [number for i in range(20, 80, 3) for number in (i, i + 1, i + 2, 0)]
    audio, windows = marked([0, *phrases]), []
    for i in range(0, audio.size, 800):
        live.push(audio[i : i + 800])
        if (job := live.next_job(ends_only=True)) is not None:
            live.apply(job, hear(job))
            windows.append(job.until_s - job.start_s)
    assert len(windows) == 20
    assert max(windows) < 5.0


def test_a_mark_behind_the_last_final_word_may_still_change() -> None:
    agreement = Agreement()
    said = [Word(" so.", 0, 1, 1.0, (7, 13))]
    agreement.update(said)
    assert agreement.update(said) == [Word(" so", 0, 1, 1.0, (7,))]
    assert joined(agreement.tail) == "."
    assert agreement.update([Word(" far", 1, 2)]) == []
    assert joined(agreement.committed + agreement.tail) == " so far"


def test_a_doubtful_word_waits_for_more_audio_behind_it() -> None:
    for probability, final in ((0.9, " old"), (0.3, "")):
        agreement = Agreement()
        heard = [Word(" old", 0.0, 1.0, probability, (7,))]
        agreement.update(heard, 1.1)
        assert joined(agreement.update(heard, 1.2)) == final
        assert joined(agreement.update(heard if not final else [], 1.4)) == " old"[len(final) :]


def test_punctuation_is_final_with_the_end_only() -> None:
    """Forced on the decoder in the middle of a sentence it would end it."""

    def dotted(job: Job) -> Hypothesis:
        words = hear(job).words
        last = words[-1] if words else Word("", 0.0, 0.0)
        ids = (*last.token_ids, 13)
        last = replace(last, text=f"{last.text}.", token_ids=ids)
        return Hypothesis((*words[:-1], last), 0.0, -0.1)

    updates = told(marked([0, *range(21, 28), 0, 0, 0]), dotted)
    finals = [u for u in updates if u.kind == "final"]
    assert len(finals) > 2
    assert text_of(updates) == expected(list(range(21, 28))) + "."
    assert finals[-1].is_end


@pytest.mark.parametrize("rest", ["", "."])
def test_what_is_said_behind_the_end_of_a_sentence_is_heard_without_it(rest: str) -> None:
    """The decoder has nothing to add to final words that look like a whole sentence."""

    def deaf(job: Job) -> Hypothesis:
        if not job.prefix_ids or job.prefix_ids[-1] < 23:
            return hear(job)
        return Hypothesis((Word(rest, 0.0, 0.0, 1.0, (13,)),) if rest else (), 0.0, -0.1)

    updates = told(marked([0, *range(21, 29), 0, 0, 0]), deaf)
    assert text_of(updates) == expected(list(range(21, 29)))


@pytest.mark.parametrize(
    ("first", "second", "final"), [(0.8, 0.8, " old"), (0.7, 0.9, ""), (0.9, 0.7, "")]
)
def test_a_word_guessed_from_half_of_it_is_agreed_only_if_both_are_sure(
    first: float, second: float, final: str
) -> None:
    agreement = Agreement()
    agreement.update([Word(" old", 0.0, 1.0, first, (7,))], 0.95)
    heard = [Word(" old", 0.0, 1.0, second, (7,))]
    assert joined(agreement.update(heard, 1.05)) == final
    assert joined(agreement.update(heard if not final else [], 1.15)) == " old"[len(final) :]
