"""LocalAgreement-2: a word is final once two transcripts in a row agree on it.

Source: Liu, Spanakis and Niehues, "Low-Latency Sequence-to-Sequence Speech Recognition and
Translation by Partial Hypothesis Selection", Interspeech 2020.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

PLAIN = re.compile(r"[^\w'’]+")


@dataclass(frozen=True, slots=True)
class Word:
    """`text` with the space in front of it, as the model wrote it. Times in seconds."""

    text: str
    start_s: float
    end_s: float
    probability: float = 1.0
    token_ids: tuple[int, ...] = ()


@dataclass(slots=True)
class Agreement:
    """What is agreed of one window of audio. A word in `committed` never changes."""

    committed: list[Word] = field(default_factory=list)
    tail: list[Word] = field(default_factory=list)
    """The revisable words after the committed ones, as of the last transcript."""

    def update(self, after: Sequence[Word]) -> list[Word]:
        """Takes the words that a new transcript has after the committed ones; returns those that
        both it and the transcript before agree on, now committed."""
        count = 0
        for old, new in zip(self.tail, after, strict=False):
            if plain(old.text) != plain(new.text):
                break
            count += 1
        return self._commit(after, count)

    def settle(self, after: Sequence[Word]) -> list[Word]:
        """Commits a last transcript as it is: no other will come for this audio."""
        return self._commit(after, len(after))

    def _commit(self, after: Sequence[Word], count: int) -> list[Word]:
        agreed = list(after[:count])
        self.committed += agreed
        self.tail = list(after[count:])
        return agreed


def plain(text: str) -> str:
    """A word without what may change around it: case and punctuation."""
    return PLAIN.sub("", text).lower()


def joined(words: Sequence[Word]) -> str:
    return "".join(word.text for word in words)
