"""What a recognizer invents on noise, and what it repeats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll.voice.guards import is_believable, without_loops


@pytest.mark.parametrize(
    ("text", "no_speech", "log_prob"),
    [
        ("", 0.0, 0.0),
        ("...", 0.0, -0.1),
        ("Thank you.", 0.3, -0.6),
        ("you", 0.98, -1.2),
        ("I'm going to go.", 0.93, -2.2),
        ("Some words", 0.7, -0.9),
    ],
)
def test_invention_is_not_believed(text: str, no_speech: float, log_prob: float) -> None:
    assert not is_believable(text, 2.0, no_speech, log_prob)


@pytest.mark.parametrize(
    ("text", "no_speech", "log_prob"),
    [
        ("Thank you.", 0.05, -0.2),
        ("He was not an ill-disposed young man.", 0.06, -0.43),
        ("Hello World.", 0.08, -0.45),
        ("Quiet but clear", 0.8, -0.3),
    ],
)
def test_speech_is_believed(text: str, no_speech: float, log_prob: float) -> None:
    assert is_believable(text, 2.0, no_speech, log_prob)


def test_more_words_than_anyone_speaks_are_not_believed() -> None:
    assert not is_believable("word " * 60, 1.0, 0.1, -0.2)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("so I went home " * 6, "so I went home"),
        ("Yes. " * 9, "Yes."),
        ("We said that that that that that that was it", "We said that"),
        ("Begin. the end of it the end of it the end of it", "Begin. the end of it"),
        ("no no no", "no no no"),
        (
            "one two three four five six seven eight nine ten",
            "one two three four five six seven eight nine ten",
        ),
    ],
)
def test_a_loop_is_said_once(text: str, kept: str) -> None:
    assert without_loops(text) == kept


def test_noise_of_one_long_word_is_dropped() -> None:
    assert without_loops("la-" * 60) == ""


@given(st.lists(st.sampled_from(["a", "b", "see", "the"]), max_size=40))
def test_what_is_kept_is_the_beginning_of_what_came(words: list[str]) -> None:
    text = " ".join(words)
    kept = without_loops(text)
    assert text.startswith(kept)
