"""Model stages that know whose audio they get: the mark is a tone in it, and comes out again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np

from preroll import RequestError, Response, Stage, batch, route
from preroll.voice.packet import pack, unpack

HEARD_FROM_HZ, SAID_FROM_HZ, STEP_HZ = 3_000, 1_000, 40
MARKS = 64


def mark_of(samples: Any, rate_hz: int, from_hz: int) -> int:
    """The mark whose tone is the loudest."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    at = [round((from_hz + STEP_HZ * i) * samples.size / rate_hz) for i in range(MARKS)]
    return int(np.argmax(spectrum[at]))


class Hearing(Stage):
    @route("POST", "/v1/recognize")
    @batch(max_size=8, max_wait=0.002)
    async def recognize(self, bodies: list[bytes]) -> list[dict[str, Any]]:
        await asyncio.sleep(0.005)
        return [self.heard(*unpack(body)) for body in bodies]

    def heard(self, head: dict[str, Any], samples: Any) -> dict[str, Any]:
        mark = mark_of(samples, 16_000, HEARD_FROM_HZ)
        words = [[" mark", 0.1, 0.2, 1.0, [1]], [f" {mark}", 0.2, 0.3, 1.0, [2]]]
        words = words[len(head["prefix"]) :]
        return {"words": words, "no_speech_prob": 0.0, "mean_log_prob": -0.1}


class Thinking(Stage):
    def load(self) -> None:
        self.failed: list[Any] = []

    def note(self, body: dict[str, Any]) -> None:
        if "log" in self.options:
            with Path(self.options["log"]).open("a") as log:
                log.write(json.dumps(body) + "\n")

    @route("POST", "/v1/chat/completions")
    async def complete(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        messages, options = body["messages"], self.options
        if sum(len(m["content"]) for m in messages) > options.get("most_chars", 1e9):
            raise RequestError("more than this model takes", status=400)
        self.note(body)
        if len(self.failed) < options.get("failures", 0):
            self.failed.append(body)
            raise RequestError("not this time", status=500)
        if body.get("max_tokens") == 1:  # nobody waits for it, and nobody should have to
            try:
                await asyncio.sleep(60)
            finally:
                self.note({"messages": [], "is_cancelled": True})
        numbers = re.findall(r"mark (\d+)|answer is (\d+)", messages[-1]["content"])
        number = "".join(numbers[-1])
        for word in ("The", " answer", " is", f" {number}", ".", options.get("tail", "")):
            await asyncio.sleep(options.get("interval_s", 0.002))
            yield {"choices": [{"delta": {"content": word}}]}


class Speaking(Stage):
    @route("POST", "/v1/synthesize")
    async def synthesize(self, body: dict[str, Any]) -> Response:
        mark = int((re.findall(r"\d+", body["text"]) or [0])[-1])
        t = np.arange(12_000) / 24_000
        tone = 0.3 * np.sin(2 * np.pi * (SAID_FROM_HZ + STEP_HZ * mark) * t)
        return Response(pack({"rate": 24_000}, tone.astype(np.float32)))
