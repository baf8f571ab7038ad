"""Stages that do nothing, in every way in which one can be written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

from preroll import Context, Item, Stage, batch, inflight, route

NUM_CHUNKS = 200
CHUNK = b"x" * 20


class Kinds(Stage):
    """`/learned` says when the code of `/wait/…` was told that its client had left."""

    def load(self) -> None:
        self.learned_s = 0.0

    @route("POST", "/answer/async")
    async def answer_async(self, body: bytes) -> bytes:
        return b"ok"

    @route("POST", "/answer/thread")
    def answer_thread(self, body: bytes) -> bytes:
        return b"ok"

    @route("POST", "/answer/batch")
    @batch(max_size=32, max_wait=0.0)
    def answer_batch(self, bodies: list[bytes]) -> list[bytes]:
        return bodies

    @route("POST", "/stream/async")
    async def stream_async(self, body: bytes) -> AsyncIterator[bytes]:
        for _ in range(NUM_CHUNKS):
            yield CHUNK

    @route("POST", "/stream/thread")
    def stream_thread(self, body: bytes) -> Iterator[bytes]:
        for _ in range(NUM_CHUNKS):
            yield CHUNK

    @route("POST", "/stream/steps")
    async def stream_steps(self, body: bytes) -> AsyncIterator[bytes]:
        async for chunk in self.step(body):
            yield chunk

    @inflight(max_size=32)
    def step(self, active: list[Item]) -> None:
        for item in active:
            item.state = (item.state or 0) + 1
            item.emit(CHUNK)
            if item.state == NUM_CHUNKS:
                item.finish()

    @route("POST", "/wait/async")
    async def wait_async(self, body: bytes) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            self.learned_s = time.monotonic()

    @route("POST", "/wait/thread")
    def wait_thread(self, body: bytes, ctx: Context) -> None:
        while not ctx.cancelled:
            time.sleep(0.001)
        self.learned_s = time.monotonic()

    @route("POST", "/wait/generator")
    def wait_generator(self, body: bytes) -> Iterator[bytes]:
        try:
            while True:
                yield CHUNK
                time.sleep(0.001)
        finally:
            self.learned_s = time.monotonic()

    @route("POST", "/wait/steps")
    async def wait_steps(self, body: bytes) -> AsyncIterator[bytes]:
        async for chunk in self.endless(body):
            yield chunk

    @inflight(max_size=4)
    def endless(self, active: list[Item]) -> None:
        time.sleep(0.001)
        for item in active:
            item.emit(CHUNK)

    @endless.left
    def gone(self, item: Item) -> None:
        self.learned_s = time.monotonic()

    @route("POST", "/learned")
    async def learned(self) -> float:
        return self.learned_s
