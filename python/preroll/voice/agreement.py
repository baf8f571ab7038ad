"""LocalAgreement-2: a word is final once two transcripts in a row agree on it.

Source: Liu, Spanakis and Niehues, "Low-Latency Sequence-to-Sequence Speech Recognition and
Translation by Partial Hypothesis Selection", Interspeech 2020.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

PLAIN = re.compile(r"[^\w'’]+")
DOUBTFUL, DOUBT_S = 0.5, 0.3
"""A word of less probability, in either transcript, needs so much more audio behind it."""


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
    _num_sure: int = 0

    def update(self, after: Sequence[Word], until_s: float = math.inf) -> list[Word]:
        """Takes the words that a new transcript has after the committed ones; returns those that
        both it and the transcript before agree on, now committed.

        A word that ends after `until_s` is shown, but neither committed nor counted as agreed the
        next time; a doubtful one waits for longer. What is committed last goes without its
        punctuation: that depends on what follows, and forced on the decoder it would end the
        sentence there.
        """
        count = 0
        for old, new in zip(self.tail[: self._num_sure], after, strict=False):
            is_doubtful = min(old.probability, new.probability) < DOUBTFUL
            sure_until_s = until_s - DOUBT_S if is_doubtful else until_s
            if plain(old.text) != plain(new.text) or new.end_s > sure_until_s:
                break
            count += 1
        agreed = list(after[:count])
        if agreed:
            agreed[-1] = without_end(agreed[-1])
        self.committed += agreed
        self.tail = list(after[count:])
        self._num_sure = sum(word.end_s <= until_s for word in self.tail)
        return agreed

    def forget_until(self, time_s: float) -> None:
        """Leaves the committed words that end by then: their audio is gone."""
        self.committed = [word for word in self.committed if word.end_s > time_s]

    def settle(self, count: int | None = None) -> list[Word]:
        """Commits the last transcript as it is, or its first `count` words: no other will come
        for this audio."""
        agreed = self.tail[:count]
        self.tail = self.tail[len(agreed) :]
        self._num_sure = 0
        self.committed += agreed
        return agreed


def without_end(word: Word) -> Word:
    """The word without the tokens of punctuation at its end, if it has some of its own."""
    bare = word.text.rstrip(".,!?;:")
    if bare == word.text or not plain(bare) or len(word.token_ids) < 2:
        return word
    return replace(word, text=bare, token_ids=word.token_ids[:-1])


def plain(text: str) -> str:
    """A word without what may change around it: case and punctuation."""
    return PLAIN.sub("", text).lower()


def joined(words: Sequence[Word]) -> str:
    return "".join(word.text for word in words)
