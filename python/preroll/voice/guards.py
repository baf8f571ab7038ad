"""What a speech recogniser invents: words on noise, and a phrase that it repeats.

An encoder-decoder always writes something. These are judged by the model's own figures and by the
text, after Radford et al. 2022, section 4.5 (no-speech probability, mean log-probability,
compression).
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

WORD = re.compile(r"[\w'’-]+")

PHANTOMS = frozenset(
    {
        "you",
        "thank you",
        "thanks for watching",
        "thank you for watching",
        "bye",
        "subscribe",
        "please subscribe",
        "music",
        "blank_audio",
        "silence",
        "the end",
        "oh",
        "so",
        "um",
        "hmm",
    }
)
"""What is written over noise again and again; only believed with a good figure."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """`no_speech`: probability above which a text must be likely (`likely_log_prob`, mean per
    token) to be kept. `least_log_prob`: below it nothing is kept. `most_chars_per_s`: nobody
    speaks faster. `most_compression`: text that shrinks more repeats itself."""

    no_speech: float = 0.6
    likely_log_prob: float = -0.8
    least_log_prob: float = -1.5
    phantom_log_prob: float = -0.35
    most_chars_per_s: float = 40.0
    most_compression: float = 2.4


def is_believable(
    text: str,
    speech_s: float,
    no_speech_prob: float,
    mean_log_prob: float,
    settings: GuardSettings | None = None,
) -> bool:
    """Whether a transcript of `speech_s` seconds is more than invention."""
    limits = settings or GuardSettings()
    plain = " ".join(WORD.findall(text.lower()))
    if not plain or mean_log_prob < limits.least_log_prob:
        return False
    if no_speech_prob > limits.no_speech and mean_log_prob < limits.likely_log_prob:
        return False
    if plain in PHANTOMS and mean_log_prob < limits.phantom_log_prob:
        return False
    return len(plain) <= max(12.0, limits.most_chars_per_s * speech_s)


def without_loops(text: str, settings: GuardSettings | None = None) -> str:
    """The text up to the second turn of a phrase that it repeats three times or more."""
    words = text.split()
    keys = [" ".join(WORD.findall(word.lower())) or word for word in words]
    for size in range(1, len(words) // 3 + 1):
        for start in range(len(words) - 3 * size + 1):
            turn = keys[start : start + size]
            # "no no no" and "ten ten ten" are said; a single word loops only when it goes on.
            turns = 3 if size > 2 else 5
            if all(keys[start + n * size : start + (n + 1) * size] == turn for n in range(turns)):
                return " ".join(words[: start + size])
    limits = settings or GuardSettings()
    return "" if compression(text) > limits.most_compression else text


def compression(text: str) -> float:
    """Bytes of the text over its bytes compressed; ordinary prose of any length is below 2.2."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0
