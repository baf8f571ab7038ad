"""A small recurrent language model with made-up weights, and a codec for what it says.

It means nothing, but it is computed like a real one: one matrix product a step for all texts in
flight. Every number is a small integer held in float32, so the product is exact in any order, and
a text's tokens are the same whoever shares its steps: a mark that nothing has crossed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

State = NDArray[np.float32]

WIDTH = 256
VOCABULARY = 1024
SAMPLE_RATE = 16_000
FRAME_S = 0.02
# 4092 * 7 * 256 < 2**24: no sum of a step leaves float32's exact integers.
MODULUS = 4093
WEIGHTS = 7


class Decoder:
    def __init__(self, seed: int = 1) -> None:
        chance = np.random.default_rng(seed)

        def matrix(rows: int, columns: int) -> State:
            whole = chance.integers(-WEIGHTS, WEIGHTS, (rows, columns), endpoint=True)
            return whole.astype(np.float32)

        self.recurrent = matrix(WIDTH, WIDTH)
        self.head = matrix(WIDTH, VOCABULARY)
        self.embedding = matrix(VOCABULARY, WIDTH) * 97

    def begin(self) -> State:
        return np.ones(WIDTH, dtype=np.float32)

    def advance(self, states: State, tokens: list[int]) -> tuple[State, NDArray[np.int64]]:
        """One step: states (batch, WIDTH) and the tokens that they take in, to the next of both."""
        states = np.mod(states @ self.recurrent + self.embedding[tokens], MODULUS)
        scores = np.mod(states @ self.head, MODULUS)
        return states, scores.argmax(axis=1)


class Codec:
    """Two tones a token, without a click between frames."""

    def __init__(self) -> None:
        self.phases = np.zeros(2)

    def frame(self, token: int) -> bytes:
        """FRAME_S of 16-bit mono samples."""
        num = int(SAMPLE_RATE * FRAME_S)
        turns = np.array([200 + 25 * (token % 32), 1200 + 50 * (token // 32)]) / SAMPLE_RATE
        phases = self.phases[:, None] + turns[:, None] * np.arange(1, num + 1)
        self.phases = phases[:, -1] % 1.0
        tones = np.sin(2 * np.pi * phases).sum(axis=0)
        return (tones * 8000).astype("<i2").tobytes()


def spoken(text: str, num_tokens: int, decoder: Decoder | None = None) -> bytes:
    """What a text sounds like, computed alone: what each client compares its own audio with."""
    decoder, codec = decoder or Decoder(), Codec()
    states, token = decoder.begin()[None], 0
    for byte in text.encode():
        states, out = decoder.advance(states, [byte])
        token = int(out[0])
    frames = [codec.frame(token)]
    for _ in range(num_tokens - 1):
        states, out = decoder.advance(states, [token])
        token = int(out[0])
        frames.append(codec.frame(token))
    return b"".join(frames)
