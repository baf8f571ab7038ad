"""What was said: the user's words, and of each answer only what the user heard.

An answer that is cut off by speech was written to its end, sent in part, and heard in a smaller
part. The model must go on from what was heard, or it refers to things that nobody said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_CHARS = 6_000
KEPT = 0.5
"""Of `MAX_CHARS`, when they are exceeded. What a model's server has read it need not read again
while requests begin with it: who forgets one turn each time has all of it read each time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer: the text as it was written, and how long its audio plays."""

    text: str
    audio_s: float


@dataclass(slots=True)
class History:
    """`max_chars`: beyond it the oldest turns are forgotten, down to `KEPT` of it."""

    max_chars: int = MAX_CHARS
    _turns: list[tuple[str, str]] = field(default_factory=list)

    def add_user(self, text: str) -> None:
        """Words of the user; two turns without an answer between them are one."""
        if self._turns and self._turns[-1][0] == "user":
            text = f"{self._turns.pop()[1]} {text}"
        self._turns.append(("user", text[-self.max_chars :]))

    def add_answer(self, pieces: Sequence[Piece], heard_s: float | None = None) -> bool:
        """An answer, up to what was heard of it; `heard_s` None: all of it.

        Returns whether turns were forgotten for it: the next request begins otherwise than all
        before.
        """
        text = heard_text(pieces, heard_s).strip()
        if text:
            self._turns.append(("assistant", text[-self.max_chars :]))
        return self._chars() > self.max_chars and self._forget_to(KEPT * self.max_chars)

    def halved(self) -> History | None:
        """For a model that refuses so much; None: there is nothing left to forget."""
        half = History(self.max_chars, list(self._turns))
        return half if half._forget_to(self._chars() / 2) else None

    def with_user(self, text: str) -> History:
        """Another history, which has these words as well."""
        other = History(self.max_chars, list(self._turns))
        other.add_user(text)
        return other

    def become(self, other: History) -> None:
        self._turns = list(other._turns)

    def messages(self, instructions: str) -> list[dict[str, str]]:
        """The turns as the messages of a chat request, behind the instructions."""
        system = [{"role": "system", "content": instructions}] if instructions else []
        return system + [{"role": role, "content": text} for role, text in self._turns]

    def _chars(self) -> int:
        return sum(len(text) for _, text in self._turns)

    def _forget_to(self, chars: float) -> bool:
        before = len(self._turns)
        # Two at a time: a history begins with the user's words. The last ones stay.
        while len(self._turns) > 2 and self._chars() > chars:
            del self._turns[:2]
        return len(self._turns) < before


def heard_text(pieces: Sequence[Piece], heard_s: float | None) -> str:
    """The text of the audio's first `heard_s` seconds, cut behind a whole word."""
    if heard_s is None:
        return "".join(piece.text for piece in pieces)
    kept: list[str] = []
    left_s = heard_s
    for piece in _clauses(pieces):
        if left_s < piece.audio_s:
            kept.append(_words_of(piece, left_s))
            break
        kept.append(piece.text)
        left_s -= piece.audio_s
    return "".join(kept)


def _clauses(pieces: Sequence[Piece]) -> list[Piece]:
    """What comes without a text belongs to the text before it."""
    found: list[Piece] = []
    for piece in pieces:
        if piece.text or not found:
            found.append(piece)
        else:
            found[-1] = Piece(found[-1].text, found[-1].audio_s + piece.audio_s)
    return found


def _words_of(piece: Piece, heard_s: float) -> str:
    """The words whose end falls into the heard part, speech being even."""
    if heard_s <= 0.0:
        return ""
    end = int(len(piece.text) * heard_s / piece.audio_s)
    while end > 0 and not piece.text[end].isspace():
        end -= 1
    return piece.text[:end].rstrip()
