"""An hour of speech through the live transcription, faster than real time and in flat memory.

Everything is real but the model: the worker, its WebSocket, rates, voice activity, what is asked of
the transcription stage and in which order, and that stage's own call. Its words are a tick for each
half second of the window, so that what must come out is known.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import psutil
import pytest
import recordings
import sounds
from websockets.asyncio.client import ClientConnection, connect

from preroll import Stage, route
from preroll.testing import serve
from preroll.voice.activity import Activity
from preroll.voice.packet import unpack
from preroll.voice.resample import resample
from preroll.voice.service import Voice
from preroll.voice.silero import Silero

pytestmark = [pytest.mark.models, pytest.mark.timeout(480)]
RATE = 8_000
"""Of what is sent: it is resampled on its way."""
HOUR_S = 3_600.0
TICK_S = 0.5
LONGEST_S = 30.0
GROWTH_BYTES = 24 << 20
"""Allowed between a quarter of the hour and its end; its audio alone is 230 MB as samples."""


class Ticks(Stage):
    """Answers as the transcription stage does; a window that is too long is an error there too."""

    longest_s = 0.0

    @route("POST", "/v1/recognize")
    async def recognize(self, body: bytes) -> dict[str, Any]:
        head, audio = unpack(body)
        length_s = audio.size / 16_000
        Ticks.longest_s = max(Ticks.longest_s, length_s)
        words = [
            [f" tick{i}", i * TICK_S, (i + 1) * TICK_S, 1.0, [i]]
            for i in range(int(length_s / TICK_S))
        ]
        return {
            "words": words[len(head["prefix"]) :],
            "no_speech_prob": 0.0,
            "mean_log_prob": -0.1,
        }


def minute() -> sounds.Samples:
    """Real speech in stretches of different lengths, one above the longest window."""
    found = [r.samples() for r in recordings.find()]
    if not found:
        pytest.skip("no recordings; fetch them: make voice")
    pause = sounds.silence(1.2)
    parts = [p for clip in found for p in (clip, pause)]
    without_a_pause = np.concatenate([voiced(clip) for clip in found])
    return np.concatenate([*parts, without_a_pause, pause])


def voiced(clip: sounds.Samples) -> sounds.Samples:
    edges = Activity()
    all_edges = [*edges.push(Silero().push(clip)), *edges.finish()]
    return clip[round(all_edges[0].at_s * 16_000) : round(all_edges[-1].at_s * 16_000)]


class Heard:
    """What came back, counted: keeping it would be memory that grows."""

    def __init__(self) -> None:
        self.num = {"speech_started": 0, "speech_stopped": 0, "error": 0}
        self.num_ends = self.num_ticks = 0
        self.done: dict[str, Any] = {}

    async def read(self, socket: ClientConnection) -> None:
        async for text in socket:
            message = json.loads(text)
            kind = message["type"]
            if kind in self.num:
                self.num[kind] += 1
            elif kind == "final":
                self.num_ends += message["is_end"]
                self.num_ticks += message["text"].count("tick")
            elif kind == "done":
                self.done = message


async def stream(url: str, block: sounds.Samples) -> tuple[Heard, list[int]]:
    """Sends the hour as fast as it is taken; memory of this process after each block."""
    own = psutil.Process()
    heard, sizes = Heard(), []
    data = sounds.s16(resample(block, 16_000, RATE))
    path = f"/v1/audio/transcriptions/stream?rate={RATE}"
    async with connect(f"{url}{path}", compression=None, ping_interval=None) as socket:
        reading = asyncio.create_task(heard.read(socket))
        sent_s = 0.0
        while sent_s < HOUR_S:
            for at in range(0, len(data), RATE // 5):
                await socket.send(data[at : at + RATE // 5])
            sent_s += block.size / 16_000
            sizes.append(own.memory_info().rss)
        await socket.send('{"type": "end"}')
        await reading
    return heard, sizes


def test_an_hour_is_heard_to_its_end_in_flat_memory() -> None:
    block = minute()
    calls = {"stt": Ticks, "llm": Ticks, "tts": Ticks}
    with serve(Voice, calls=calls) as service:
        heard, sizes = asyncio.run(stream(service.url.replace("http", "ws"), block))
    assert heard.done["duration_ms"] >= 1e3 * HOUR_S
    assert heard.num["error"] == 0
    stretches = heard.num["speech_started"]
    assert stretches == heard.num["speech_stopped"] == heard.num_ends
    assert stretches >= 5 * len(sizes)
    assert heard.done["text"].count("tick") == heard.num_ticks
    # Half of the hour at the least is speech, and all of it was transcribed.
    assert heard.num_ticks > 0.4 * HOUR_S / TICK_S
    assert Ticks.longest_s <= LONGEST_S
    assert sizes[-1] - sizes[len(sizes) // 4] < GROWTH_BYTES
