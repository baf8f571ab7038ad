"""Cuts a text that is still being written into pieces that can be said one by one.

The first piece decides when a listener hears something, so it is short; later ones are longer,
because a voice that knows the whole sentence says it better, and there is time.
"""

from __future__ import annotations

from dataclasses import dataclass

STOPS = frozenset(".!?…")
PAUSES = frozenset(",;:—")
WIDE_STOPS = frozenset("。！？")
WIDE_PAUSES = frozenset("，、；：")
CLOSERS = frozenset("\"')]}»”’*_`")
ABBREVIATIONS = frozenset(
    (
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "st",
        "jr",
        "sr",
        "vs",
        "etc",
        "e.g",
        "i.e",
        "fig",
        "inc",
        "ltd",
    )
)


@dataclass(frozen=True, slots=True)
class ClauseSettings:
    """Lengths in characters. A stop cuts once `min_chars` have come, a pause once `pause_chars`,
    a space at `max_chars`; the `first_` ones hold until the first piece is out."""

    first_min_chars: int = 2
    first_pause_chars: int = 12
    first_max_chars: int = 60
    min_chars: int = 24
    pause_chars: int = 80
    max_chars: int = 200


class ClauseSplitter:
    """`push` the text as it comes; `finish` gives the last piece. Nothing is lost: the pieces
    joined are the text."""

    def __init__(self, settings: ClauseSettings | None = None) -> None:
        self.settings = settings or ClauseSettings()
        self._text = ""
        self._scanned = 0
        self._is_first = True

    def push(self, delta: str) -> list[str]:
        self._text += delta
        pieces = []
        while (cut := self._cut()) is not None:
            pieces.append(self._take(cut))
        return pieces

    def finish(self) -> list[str]:
        rest, self._text, self._scanned = self._text, "", 0
        return [rest] if rest else []

    def _take(self, cut: int) -> str:
        piece, self._text = self._text[:cut], self._text[cut:]
        self._scanned = 0
        self._is_first = self._is_first and not piece.strip()
        return piece

    def _cut(self) -> int | None:
        """Where the next piece ends, once the character after it is known."""
        text, settings = self._text, self.settings
        least, pause, most = (
            (settings.first_min_chars, settings.first_pause_chars, settings.first_max_chars)
            if self._is_first
            else (settings.min_chars, settings.pause_chars, settings.max_chars)
        )
        for i in range(self._scanned, len(text) - 1):
            if i + 1 >= least and _is_stop(text, i):
                return i + 1
            if i + 1 >= pause and _is_pause(text, i):
                return i + 1
            if i + 1 >= most:
                return _last_space(text, i + 1) or i + 1
        self._scanned = max(0, len(text) - 1)
        return None


def _is_stop(text: str, i: int) -> bool:
    char, after = text[i], text[i + 1]
    if char == "\n" or char in WIDE_STOPS:
        return after not in CLOSERS
    if char in CLOSERS and i and text[i - 1] in STOPS | WIDE_STOPS:
        return after.isspace()
    if char not in STOPS or not after.isspace():
        return False
    return char != "." or not _is_abbreviation(text[:i])


def _is_abbreviation(before: str) -> bool:
    """Whether a full stop after `before` ends no sentence: "Dr.", an initial, "1." of a list."""
    word = before[-12:].split()[-1:] or [""]
    plain = word[0].strip("(\"'*_").lower()
    is_number_of_list = plain.isdigit() and before.strip() == word[0]
    return (
        plain in ABBREVIATIONS
        or is_number_of_list
        or (len(plain) == 1 and plain.isalpha() and plain != "i")
    )


def _is_pause(text: str, i: int) -> bool:
    return text[i] in WIDE_PAUSES or (text[i] in PAUSES and text[i + 1].isspace())


def _last_space(text: str, end: int) -> int | None:
    """The end of the last whole word in the later half of text[:end]."""
    for i in range(end - 1, end // 2, -1):
        if text[i].isspace():
            return i + 1
    return None
