"""The voice service: `class = "preroll.voice.service:Voice"`, which the `[voice]` table makes.

It holds no model but the small one for voice activity: what is heavy is a stage of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from preroll import Context, Form, Response, Session, Stage, route
from preroll.errors import InputError
from preroll.voice import page, silero, wire
from preroll.voice.encode import FORMATS, get_encoder
from preroll.voice.gauges import Gauges
from preroll.voice.live_session import LiveSession
from preroll.voice.models import ModelError, Models
from preroll.voice.resample import resample
from preroll.voice.settings import VoiceSettings
from preroll.voice.speech import SpeechRequest, speak
from preroll.voice.talk import Talk
from preroll.voice.transcription import TranscriptionRequest, transcribe, transcribe_events
from preroll.worker.errors import RequestError

CODECS_AFTER_S = 1.0


def load_codecs() -> None:
    """The first use of a codec loads its library."""
    for form in FORMATS:
        encoder = get_encoder(form)
        encoder.push(np.zeros(2_400, np.float32))
        encoder.finish()


class Voice(Stage):
    """Endpoints over three model stages; see the modules of each."""

    max_body_bytes = 64 << 20

    def load(self) -> None:
        self.settings = VoiceSettings.of(self.options)
        self.models = Models(self, self.settings)
        self.gauges = Gauges(self.preroll_metrics)
        silero.load()

    async def warm(self) -> None:
        """What a conversation needs. The codecs of files follow when the start is over: loading
        them would take a tenth of a second of a processor that the models load with."""
        some = np.zeros(2_400, np.float32)
        silero.Silero().push(resample(some, 24_000, 16_000))
        loop = asyncio.get_running_loop()
        loop.call_later(CODECS_AFTER_S, loop.run_in_executor, None, load_codecs)

    @route("POST", "/v1/audio/speech")
    async def speech(self, body: dict[str, Any]) -> AsyncIterator[Any]:
        began_s = time.monotonic()
        request = SpeechRequest.of(body, self.settings.max_input_chars)
        try:
            async for chunk in speak(request, self.models, self.gauges, began_s):
                yield chunk
        except ModelError as error:
            raise self._failed(error) from error

    @route("POST", "/v1/audio/transcriptions")
    async def transcriptions(self, form: Form) -> Any:
        request = TranscriptionRequest.of(form)
        if request.is_stream:
            return self._events(request)
        try:
            return await transcribe(request, self.models, self.gauges)
        except ModelError as error:
            raise self._failed(error) from error

    async def _events(self, request: TranscriptionRequest) -> AsyncIterator[Any]:
        try:
            async for event in transcribe_events(request, self.models, self.gauges):
                yield event
        except ModelError as error:
            raise self._failed(error) from error

    @route("WEBSOCKET", "/v1/audio/transcriptions/stream")
    async def live(self, socket: Session, ctx: Context) -> None:
        settings = await self._settings(socket, ctx, wire.LISTEN_PARAMETERS)
        if settings is not None:
            await LiveSession(socket, settings, self.models, self.gauges).run()

    @route("WEBSOCKET", "/v1/talk")
    async def talk(self, socket: Session, ctx: Context) -> None:
        settings = await self._settings(socket, ctx, wire.TALK_PARAMETERS)
        if settings is not None:
            await Talk(socket, settings, self.models, self.gauges).run()

    @route("GET", "/voice/{name...}")
    async def file(self, ctx: Context) -> Response:
        return await asyncio.to_thread(page.answer, ctx.path_values["name"], self.settings.page)

    async def _settings(
        self, socket: Session, ctx: Context, allowed: tuple[str, ...]
    ) -> wire.SessionSettings | None:
        try:
            return wire.SessionSettings.of(ctx.query, allowed)
        except InputError as error:
            await socket.reject(400, str(error), "invalid_request")
            return None

    def _failed(self, error: ModelError) -> RequestError:
        """A model stage's own refusal holds for the whole request: the client may come back."""
        self.gauges.errors(error.stage).value += 1
        cause = error.__cause__
        status = cause.status if isinstance(cause, RequestError) else 503
        return RequestError(str(error), status=status, kind="stage_failed")
