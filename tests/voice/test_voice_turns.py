"""Who speaks, and what of an answer was heard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll.voice.history import History, Piece, heard_text
from preroll.voice.turns import Answer, Interrupt, State, Turns


def test_a_question_is_answered_once_silence_and_words_are_there() -> None:
    turns = Turns()
    assert turns.speech_started() == []
    turns.speech_stopped()
    assert turns.heard("Hello") == [Answer(1, "Hello")]
    turns.answered(1)
    assert turns.state is State.LISTENING


def test_a_user_who_goes_on_after_a_pause_is_answered_once_to_everything() -> None:
    turns = Turns()
    turns.speech_started()
    turns.speech_stopped()
    turns.speech_started()
    assert turns.heard("Tell me") == []
    turns.speech_stopped()
    assert turns.heard("a story") == [Answer(1, "Tell me a story")]


def test_speech_during_an_answer_interrupts_it() -> None:
    turns = Turns()
    turns.speech_started()
    turns.speech_stopped()
    turns.heard("Hi")
    assert turns.speech_started() == [Interrupt(1)]
    turns.answered(1)  # too late: it was interrupted
    assert turns.state is State.HEARING
    turns.speech_stopped()
    assert turns.heard("Stop") == [Answer(2, "Stop")]


def test_noise_without_words_is_not_answered() -> None:
    turns = Turns()
    turns.speech_started()
    turns.speech_stopped()
    assert turns.heard("  ") == []
    assert turns.state is State.LISTENING


def test_what_a_pause_may_begin_is_what_its_end_begins() -> None:
    turns = Turns()
    assert turns.likely("Hello") is None, "nobody speaks"
    turns.speech_started()
    turns.heard("Tell me")
    assert turns.likely(" ") is None
    likely = turns.likely("a story ")
    assert likely == Answer(1, "Tell me a story")
    turns.speech_stopped()
    assert turns.heard("a story ") == [likely]
    assert turns.likely("more") is None, "it is being answered"


def test_cancel_stops_an_answer_and_nothing_else() -> None:
    turns = Turns()
    assert turns.cancel() == []
    turns.speech_started()
    assert turns.cancel() == []
    turns.speech_stopped()
    turns.heard("Hi")
    assert turns.cancel() == [Interrupt(1)]
    assert turns.cancel() == []


@given(
    st.lists(
        st.sampled_from(["start", "stop", "words", "empty", "answered", "cancel"]), max_size=60
    )
)
def test_no_order_of_events_answers_twice_at_once_or_loses_words(events: list[str]) -> None:
    turns, running, said, answered = Turns(), set(), 0, 0
    for event in events:
        actions: list[Answer | Interrupt] = []
        if event == "start":
            actions = turns.speech_started()
        elif event == "stop":
            turns.speech_stopped()
        elif event == "cancel":
            actions = turns.cancel()
        elif event == "answered":
            turns.answered(turns.turn)
            running.discard(turns.turn)
        else:
            said += event == "words"
            actions = turns.heard("w" if event == "words" else "")
        for action in actions:
            if isinstance(action, Answer):
                running.add(action.turn)
                answered += len(action.text.split())
            else:
                running.discard(action.turn)
        assert len(running) <= 1
        assert (turns.state is State.ANSWERING) >= bool(running)
    turns.answered(turns.turn)
    turns.speech_started()
    turns.speech_stopped()
    rest = turns.heard("")
    assert answered + sum(len(a.text.split()) for a in rest if isinstance(a, Answer)) == said


PIECES = [Piece("Hello there. ", 1.0), Piece("This is the second sentence.", 2.0)]


@pytest.mark.parametrize(
    ("heard_s", "text"),
    [
        (None, "Hello there. This is the second sentence."),
        (0.0, ""),
        (0.6, "Hello"),
        (1.0, "Hello there. "),
        (2.0, "Hello there. This is the"),
        (3.0, "Hello there. This is the second sentence."),
        (99.0, "Hello there. This is the second sentence."),
    ],
)
def test_history_keeps_what_was_heard(heard_s: float | None, text: str) -> None:
    assert heard_text(PIECES, heard_s) == text


@given(st.floats(0, 4, allow_nan=False))
def test_what_was_heard_is_a_beginning_of_whole_words(heard_s: float) -> None:
    whole = "".join(p.text for p in PIECES)
    kept = heard_text(PIECES, heard_s)
    assert whole.startswith(kept)
    assert not kept or kept == whole or not whole[len(kept)].isalnum() or kept[-1].isspace()


def test_two_turns_of_the_user_in_a_row_are_one_message() -> None:
    history = History()
    history.add_user("Tell me")
    history.add_answer(PIECES, 0.0)
    history.add_user("a story")
    assert history.messages("Be kind") == [
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": "Tell me a story"},
    ]


def test_a_long_history_forgets_its_oldest_turns_many_at_once() -> None:
    history = History(max_chars=1000)
    beginnings, forgotten = [], 0
    for i in range(200):
        history.add_user(f"question {i} " + "x" * 20)
        messages = history.messages("")
        assert sum(len(m["content"]) for m in messages) <= 1100
        assert messages[0]["role"] == "user" and messages[-1]["content"].startswith(f"question {i}")
        beginnings.append(messages[0]["content"])
        forgotten += history.add_answer([Piece(f"answer {i}", 1.0)])
    assert history.messages("")[-1]["content"] == "answer 199"
    # A model's server can go on from what it has read in all turns but these.
    assert len(set(beginnings)) == forgotten + 1
    assert 10 < forgotten < 25


def test_a_history_that_a_model_refuses_is_halved_to_the_last_words() -> None:
    history = History()
    for i in range(16):
        history.add_user(f"question {i}")
        history.add_answer([Piece(f"answer {i}", 1.0)])
    history.add_user("and now?")
    lengths, shorter = [], history
    while (half := shorter.halved()) is not None:
        lengths.append(len(half.messages("")))
        shorter = half
    assert lengths == [15, 7, 3, 1]
    assert len(history.messages("")) == 33, "nothing is forgotten before it has helped"
    history.become(shorter)
    assert history.messages("") == [{"role": "user", "content": "and now?"}]
