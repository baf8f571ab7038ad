"""Recorded speech with transcripts, and how wrong a transcript of it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preroll.voice.decode import decode
from preroll.voice.pcm import Samples, to_float

FOLDER = Path(__file__).parents[2] / ".cache/voice/samples"
AUDIOEVAL = "audioeval/pytest_audioeval/samples/audio/en"
SPHINX = "testdata/usr/share/pocketsphinx/test/data"
RAW_TEXTS = {"goforward": "go forward ten meters", "something": "go somewhere and do something"}
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@dataclass(frozen=True, slots=True)
class Recording:
    path: Path
    text: str

    def samples(self) -> Samples:
        """Mono, 16 kHz."""
        if self.path.suffix == ".raw":
            return to_float(self.path.read_bytes())
        return np.concatenate(list(decode(self.path.read_bytes())))


def find(folder: Path = FOLDER) -> list[Recording]:
    """All English recordings that `make voice` has fetched."""
    return [*_audioeval(folder / AUDIOEVAL), *_transcribed(folder / SPHINX / "librivox")]


def commands(folder: Path = FOLDER) -> list[Recording]:
    """Short ones of other speakers, cards and orders to a robot: harder, a few words each."""
    raw = [Recording(folder / SPHINX / f"{name}.raw", text) for name, text in RAW_TEXTS.items()]
    return [*_transcribed(folder / SPHINX / "cards"), *(r for r in raw if r.path.is_file())]


def _audioeval(folder: Path) -> Iterator[Recording]:
    for path in sorted(folder.glob("*.wav")):
        yield Recording(path, path.with_suffix(".txt").read_text().strip())


def _transcribed(folder: Path) -> Iterator[Recording]:
    transcripts = next(folder.glob("*transcription"), None)
    if transcripts is None:
        return
    for line in transcripts.read_text().splitlines():
        found = re.fullmatch(r"<s> (.*?) +</s> \((.*)\)", line)
        if found is not None:
            yield Recording(folder / f"{found[2]}.wav", found[1])


def words(text: str) -> list[str]:
    """Plain words: no case, no punctuation, a hyphen is a space, a title is its word, and a
    number is said as its digits ("345" is three words), but ten is one word."""
    plain = text.lower().replace("mr.", "mister").replace("-", " ")
    found = []
    for word in re.findall(r"[a-z']+|\d+", plain):
        if not word.isdigit():
            found.append(word)
        else:
            found += ["ten"] if word == "10" else [DIGITS[int(digit)] for digit in word]
    return found


def errors(said: str, heard: str) -> tuple[int, int]:
    """Words substituted, left out or invented (the least that explain it), and words said."""
    reference, hypothesis = words(said), words(heard)
    row = list(range(len(hypothesis) + 1))
    for i, expected in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, got in enumerate(hypothesis, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (expected != got))
    return row[-1], len(reference)
