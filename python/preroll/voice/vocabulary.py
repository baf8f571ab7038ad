"""The tokens of a CTranslate2 model that spells its text in bytes (GPT-2's way), from numbers to
text. Its list of tokens is read, not the rules of a tokenizer: nothing here turns text into them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from preroll.errors import InputError

FILES = ("vocabulary.json", "vocabulary.txt")
SPACE = "Ġ"


class Vocabulary:
    """`tokens`: by number, as the model's file spells them."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens

    @classmethod
    def of(cls, folder: Path) -> Vocabulary:
        """Of a model's folder. Raises InputError where it has no list of tokens."""
        path = next((folder / name for name in FILES if (folder / name).is_file()), None)
        if path is None:
            raise InputError(f"{folder} has no list of tokens; allowed: {', '.join(FILES)}")
        text = path.read_text("utf-8")
        return cls(
            json.loads(text) if path.suffix == ".json" else text.removesuffix("\n").split("\n")
        )

    def number(self, token: str) -> int:
        """Raises InputError for a token that the model does not have."""
        try:
            return self.tokens.index(token)
        except ValueError:
            raise InputError(f"the model has no token {token!r}") from None

    def begins_word(self, number: int) -> bool:
        return self.tokens[number].startswith(SPACE)

    def text(self, numbers: Iterable[int]) -> str:
        """Bytes that are no whole character become U+FFFD."""
        of = _bytes()
        spelled = "".join(self.tokens[number] for number in numbers)
        return bytes(of[character] for character in spelled).decode(errors="replace")


@lru_cache(maxsize=1)
def _bytes() -> dict[str, int]:
    """The byte that each character of a token stands for: printable ones for themselves, the
    others, in their order, for the characters from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(others)}
