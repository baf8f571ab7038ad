"""Two stages with different appetites: one wants large steps, the other must never run dry."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from decoder import Codec, Decoder, State

from preroll import Context, InputError, Item, Stage, inflight, route

MAX_BYTES = 4096
MAX_TOKENS = 10_000


@dataclass
class Progress:
    """One text in flight: the bytes still to be read, the tokens still to be said."""

    vector: State
    unread: Iterator[int]
    next_input: int
    num_left: int
    is_reading: bool = True


class Tokens(Stage):
    """Each step takes one token of every text in flight: a byte of its prompt, or its own last."""

    def load(self) -> None:
        self.decoder = Decoder()

    def warm(self) -> None:
        for num in range(1, 9):
            self.decoder.advance(np.stack([self.decoder.begin()] * num), [0] * num)

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[dict[str, int]]:
        text, num = body.get("text"), body.get("tokens")
        if not isinstance(text, str) or not 1 <= len(text.encode()) <= MAX_BYTES:
            raise InputError(f"text is missing; allowed: 1 to {MAX_BYTES} bytes of text")
        if type(num) is not int or not 1 <= num <= MAX_TOKENS:
            raise InputError(f"tokens = {num!r}; allowed: 1 to {MAX_TOKENS}")
        async for token in self.step((text, num)):
            yield {"token": token}

    @inflight(max_size=8)
    def step(self, active: list[Item]) -> None:
        for item in active:
            if item.state is None:
                text, num = item.input
                unread = iter(text.encode())
                item.state = Progress(self.decoder.begin(), unread, next(unread), num)
        vectors = np.stack([item.state.vector for item in active])
        vectors, tokens = self.decoder.advance(vectors, [item.state.next_input for item in active])
        for item, vector, token in zip(active, vectors, tokens.tolist(), strict=True):
            self.advance(item, item.state, vector, token)

    def advance(self, item: Item, progress: Progress, vector: State, token: int) -> None:
        progress.vector = vector
        if progress.is_reading:
            byte = next(progress.unread, None)
            if byte is not None:
                progress.next_input = byte
                return
            progress.is_reading = False
        progress.next_input = token
        progress.num_left -= 1
        item.emit(token)
        if progress.num_left == 0:
            item.finish()


class Speech(Stage):
    """Turns tokens into frames of 20 ms as they come."""

    content_type = "audio/pcm"

    def load(self) -> None:
        self.tokens = self.stage("tokens")

    @route("POST", "/speak")
    async def speak(self, body: dict[str, Any], ctx: Context) -> AsyncIterator[bytes]:
        codec = Codec()
        async for event in self.tokens.events(body):
            yield codec.frame(json.loads(event)["token"])
