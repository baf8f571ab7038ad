"""Text as it is written to text as it is said: markup, links, code and emoji go.

Each rule is a pattern that looks at a bounded piece of text, so a hundred kilobytes of brackets
cost no more than a hundred kilobytes of prose.
"""

from __future__ import annotations

import re
import unicodedata

FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<!--.{0,2000}?-->", re.DOTALL), " "),
    (re.compile(r"</?[A-Za-z][^<>\n]{0,500}>"), " "),
    (re.compile(r"!\[([^\[\]\n]{0,500})\]\([^()\n]{0,2000}\)"), r"\1"),
    (re.compile(r"\[([^\[\]\n]{1,500})\]\([^()\n]{0,2000}\)"), r"\1"),
    (re.compile(r"\b(?:https?|ftp)://([\w.-]{1,253})\S{0,2000}"), r"\1"),
    (re.compile(r"^[ \t]{0,8}(?:#{1,6}|>{1,8}|[-*+•])[ \t]+", re.MULTILINE), ""),
    (re.compile(r"^[ \t|:-]{3,}$", re.MULTILINE), ""),
    (re.compile(r"^[ \t]{0,8}\||\|[ \t]{0,8}$", re.MULTILINE), ""),
    (re.compile(r"[ \t]{0,8}\|[ \t]{0,8}"), ", "),
    (re.compile(r"`{1,3}|\*{1,3}|~~"), ""),
    # An underscore inside a word is part of a name.
    (re.compile(r"(?<!\w)_{1,3}|_{1,3}(?!\w)"), ""),
    (re.compile(r"&(?:nbsp|#160);"), " "),
    (re.compile(r"&amp;"), "and"),
    (re.compile(r"\\([\\`*_{}\[\]()#+.!|-])"), r"\1"),
)
SPACE = re.compile(r"\s+")

UNSPOKEN = frozenset({"So", "Sk", "Cs", "Co", "Cn", "Cc", "Cf"})
"""Unicode categories that no voice reads: pictures, modifiers, controls, surrogates."""
SPOKEN_SYMBOLS = frozenset("°©®™")


class Cleaner:
    """Cleans the clauses of one text in order; a code fence may span several of them."""

    def __init__(self) -> None:
        self._is_in_code = False

    def clean(self, clause: str) -> str:
        """The clause as it is said; empty when there is nothing sayable in it."""
        text = self._without_code(clause)
        for pattern, replacement in RULES:
            text = pattern.sub(replacement, text)
        text = "".join(map(_spoken, text))
        text = SPACE.sub(" ", text).strip()
        return text if is_sayable(text) else ""

    def _without_code(self, text: str) -> str:
        kept: list[str] = []
        for line in text.splitlines(keepends=True):
            if FENCE.match(line):
                self._is_in_code = not self._is_in_code
            elif not self._is_in_code:
                kept.append(line)
        return "".join(kept)


def is_sayable(text: str) -> bool:
    """Whether there is a letter or a digit, of any script."""
    return any(unicodedata.category(char)[0] in "LN" for char in text)


def _spoken(char: str) -> str:
    if char in "\n\t " or char in SPOKEN_SYMBOLS:
        return char
    return " " if unicodedata.category(char) in UNSPOKEN else char
