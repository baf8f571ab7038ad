"""What was said: the user's words, and of each answer only what the user heard.

An answer that is cut off by speech was written to its end, sent in part, and heard in a smaller
part. The model must go on from what was heard, or it refers to things that nobody said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_CHARS = 6_000
"""Of history: what a small model's context holds besides its instructions and the answer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer: the text as it was written, and how long its audio plays."""

    text: str
    audio_s: float


@dataclass(slots=True)
class History:
    """`max_chars`: the oldest turns are forgotten beyond it."""

    max_chars: int = MAX_CHARS
    _turns: list[tuple[str, str]] = field(default_factory=list)

    def add_user(self, text: str) -> None:
        """Words of the user; two turns without an answer between them are one."""
        if self._turns and self._turns[-1][0] == "user":
            text = f"{self._turns.pop()[1]} {text}"
        self._add("user", text)

    def add_answer(self, pieces: Sequence[Piece], heard_s: float | None = None) -> None:
        """An answer, up to what was heard of it; `heard_s` None: all of it."""
        text = heard_text(pieces, heard_s).strip()
        if text:
            self._add("assistant", text)

    def messages(self, instructions: str) -> list[dict[str, str]]:
        """The turns as the messages of a chat request, behind the instructions."""
        system = [{"role": "system", "content": instructions}] if instructions else []
        return system + [{"role": role, "content": text} for role, text in self._turns]

    def _add(self, role: str, text: str) -> None:
        self._turns.append((role, text[-self.max_chars :]))
        # Two at a time: a history begins with the user's words.
        while len(self._turns) > 2 and sum(len(text) for _, text in self._turns) > self.max_chars:
            del self._turns[:2]


def heard_text(pieces: Sequence[Piece], heard_s: float | None) -> str:
    """The text of the audio's first `heard_s` seconds, cut behind a whole word."""
    if heard_s is None:
        return "".join(piece.text for piece in pieces)
    kept: list[str] = []
    left_s = heard_s
    for piece in pieces:
        if left_s < piece.audio_s:
            kept.append(_words_of(piece, left_s))
            break
        kept.append(piece.text)
        left_s -= piece.audio_s
    return "".join(kept)


def _words_of(piece: Piece, heard_s: float) -> str:
    """The words whose end falls into the heard part, speech being even."""
    if heard_s <= 0.0:
        return ""
    end = int(len(piece.text) * heard_s / piece.audio_s)
    while end > 0 and not piece.text[end].isspace():
        end -= 1
    return piece.text[:end].rstrip()
