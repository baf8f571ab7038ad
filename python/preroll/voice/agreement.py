"""LocalAgreement-2: a word is final once two transcripts in a row agree on it.

Source: Liu, Spanakis and Niehues, "Low-Latency Sequence-to-Sequence Speech Recognition and
Translation by Partial Hypothesis Selection", Interspeech 2020.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

PLAIN = re.compile(r"[^\w'’]+")
DOUBTFUL, DOUBT_S = 0.5, 0.3
"""A word of less probability, in either transcript, needs so much more audio behind it."""
GUESSED = 0.75
"""What a word must have in both that was right behind the audio in the first of them, and may have
been guessed from half of it."""


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

        A word that ends after `until_s` is shown and not committed, and counts as agreed the next
        time only if both are sure of it; a doubtful one waits for longer. What is committed last
        goes without its punctuation: that depends on what follows, and forced on the decoder it
        would end the sentence there.
        """
        count = 0
        for old, new in zip(self.tail, after, strict=False):
            probability = min(old.probability, new.probability)
            sure_until_s = until_s - DOUBT_S if probability < DOUBTFUL else until_s
            is_guessed = count >= self._num_sure and probability < GUESSED
            is_same = plain(old.text) == plain(new.text) != ""
            if is_guessed or not is_same or new.end_s > sure_until_s:
                break
            count += 1
        agreed, tail = list(after[:count]), list(after[count:])
        if agreed:
            agreed[-1], mark = without_end(agreed[-1])
            tail = tail or mark
        self.committed += agreed
        self.tail = tail
        self._num_sure = sum(word.end_s <= until_s for word in self.tail)
        return agreed

    def forget_until(self, time_s: float) -> list[Word]:
        """Leaves the committed words that end by then, and returns them: their audio is gone."""
        left = [word for word in self.committed if word.end_s <= time_s]
        self.committed = [word for word in self.committed if word.end_s > time_s]
        return left

    def settle(self, count: int | None = None) -> list[Word]:
        """Commits the last transcript as it is, or its first `count` words: no other will come
        for this audio."""
        agreed = self.tail[:count]
        self.tail = self.tail[len(agreed) :]
        self._num_sure = 0
        self.committed += agreed
        return agreed


def after(words: Sequence[Word], before: Sequence[Word]) -> list[Word] | None:
    """The words that follow those `before`, if they begin with them."""
    count = len(before)
    begins = [plain(word.text) for word in words[:count]]
    return list(words[count:]) if begins == [plain(word.text) for word in before] else None


def rest_after(words: Sequence[Word], before: Sequence[Word]) -> list[Word]:
    """The words of a better transcript that follow those `before`, of which it may have others:
    counted from the last word that both have. None of them if they have none in common."""
    old, new = ([plain(word.text) for word in some] for some in (before, words))
    *same, _ = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    if before and not same:
        return []
    return list(words[same[-1].b + len(before) - same[-1].a :]) if same else list(words)


def without_end(word: Word) -> tuple[Word, list[Word]]:
    """The word without the punctuation at its end, if that is a token of its own, and that."""
    bare = word.text.rstrip(".,!?;:")
    if bare == word.text or not plain(bare) or len(word.token_ids) < 2:
        return word, []
    ids = word.token_ids
    mark = Word(word.text[len(bare) :], word.end_s, word.end_s, word.probability, ids[-1:])
    return replace(word, text=bare, token_ids=ids[:-1]), [mark]


def plain(text: str) -> str:
    """A word without what may change around it: case and punctuation."""
    return PLAIN.sub("", text).lower()


def joined(words: Sequence[Word]) -> str:
    return "".join(word.text for word in words)
