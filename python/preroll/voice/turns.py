"""Who speaks: the states of a conversation by turns, and what each event makes necessary.

Pure: events come in, actions come out.

    LISTENING ──speech──▶ HEARING ──silence, words──▶ ANSWERING ──answered──▶ LISTENING
                             ▲                            │
                             └────── speech: interrupt ───┘
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    LISTENING = "listening"
    HEARING = "hearing"
    ANSWERING = "answering"


@dataclass(frozen=True, slots=True)
class Answer:
    """Start an answer to these words of the user."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the answer of that turn, now."""

    turn: int


Action = Answer | Interrupt


class Turns:
    """One conversation. Turns are numbered from 1; a turn is an answer and the words before it."""

    def __init__(self) -> None:
        self.state = State.LISTENING
        self.turn = 0
        self._words: list[str] = []

    def speech_started(self) -> list[Action]:
        """The user begins to speak; an answer that is under way stops."""
        actions: list[Action] = [Interrupt(self.turn)] if self.state is State.ANSWERING else []
        self.state = State.HEARING
        return actions

    def speech_stopped(self) -> None:
        """Enough silence that the user's turn is over."""
        if self.state is State.HEARING:
            self.state = State.LISTENING

    def heard(self, text: str) -> list[Action]:
        """The last transcript of an utterance. Words are answered once nobody speaks: a user who
        went on after a pause is answered once, to everything."""
        if text.strip():
            self._words.append(text.strip())
        if self.state is not State.LISTENING or not self._words:
            return []
        self.turn += 1
        self.state = State.ANSWERING
        words, self._words = " ".join(self._words), []
        return [Answer(self.turn, words)]

    def likely(self, text: str) -> Answer | None:
        """What `heard` would begin for these words if the pause they are followed by ended the
        turn. Changes nothing."""
        if self.state is not State.HEARING or not text.strip():
            return None
        return Answer(self.turn + 1, " ".join([*self._words, text.strip()]))

    def answered(self, turn: int) -> None:
        """The answer of `turn` has ended, well or not."""
        if turn == self.turn and self.state is State.ANSWERING:
            self.state = State.LISTENING

    def cancel(self) -> list[Action]:
        """The client wants silence."""
        if self.state is not State.ANSWERING:
            return []
        self.state = State.LISTENING
        return [Interrupt(self.turn)]
