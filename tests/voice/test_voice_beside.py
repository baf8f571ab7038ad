"""A second transcript beside the first: only where the stage has a worker for it and nothing else
is being answered, and never one that anybody has to hear of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from test_voice_live import LoudVad, hear, marked, text_of

from preroll.errors import UnavailableError
from preroll.voice import listening as listening_module
from preroll.voice import whisper
from preroll.voice.gauges import Gauges
from preroll.voice.listening import Listener
from preroll.voice.live import Job, LiveTranscript, Update
from preroll.voice.models import ModelError, Models
from preroll.voice.packet import unpack
from preroll.voice.pcm import Samples
from preroll.voice.settings import VoiceSettings
from preroll.worker.client import Answer
from preroll.worker.metrics import Metrics

SPEECH = marked([0, *range(20, 40)])
CHUNK = 1_600


async def soon(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never came about")


class Transcriber:
    """A transcription stage whose answers wait until they are let go, in any order."""

    def __init__(self, workers: int | None) -> None:
        self.workers = workers
        self.beside: list[bool] = []
        self.held: list[asyncio.Future[None]] = []
        self.is_down = False

    def stage(self, _: str) -> Transcriber:
        return self

    async def post(self, body: bytes, path: str) -> Answer:
        assert path == whisper.PATH
        head, audio = unpack(body)
        self.beside.append(head["beside"])
        if self.is_down:
            raise UnavailableError("nobody is there")
        self.held.append(asyncio.get_running_loop().create_future())
        await self.held[-1]
        heard = hear(Job(1, audio, 0.0, 0.0, tuple(head["prefix"]), 0.0))
        workers = {} if self.workers is None else {"workers": self.workers}
        return Answer(200, {}, json.dumps({**whisper.to_json(heard), **workers}).encode())

    @property
    def waiting(self) -> list[asyncio.Future[None]]:
        return [held for held in self.held if not held.done()]


class Listening:
    """A listener at work, and all that it told; `beside` another session of the same service."""

    def __init__(self, workers: int | None = 2, beside: Listening | None = None) -> None:
        self.stage = Transcriber(workers) if beside is None else beside.stage
        self.models = Models(cast(Any, self.stage), VoiceSettings())
        if beside is not None:
            self.models = beside.models
        self.updates: list[Update] = []
        self.failed: list[ModelError] = []
        gauges = Gauges(Metrics())
        live = LiveTranscript(LoudVad())
        self.listener = Listener(live, self.models, gauges, self._heard, self._failed)
        self.position = 0
        self.held: list[bool] = []
        """Of the calls, in their order: whether it was cancelled by the end."""

    async def _heard(self, update: Update, _: float | None) -> None:
        self.updates.append(update)

    async def _failed(self, error: ModelError) -> None:
        self.failed.append(error)

    async def speak(self, chunks: int) -> None:
        for _ in range(chunks):
            self.listener.push(SPEECH[self.position : self.position + CHUNK])
            self.position += CHUNK
            await settled()

    async def let_go(self, number: int = 0) -> None:
        self.stage.waiting[number].set_result(None)
        await settled()

    async def end(self) -> str:
        """All that was said until now."""
        self.listener.finish()
        draining = asyncio.ensure_future(self.listener.drain())
        while not draining.done():
            for held in self.stage.waiting:
                held.set_result(None)
            await settled()
        return text_of(self.updates)


async def settled() -> None:
    """Everything that can go on without anybody's help has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


def listening(scene: Callable[[Listening], Awaitable[None]], workers: int | None = 2) -> Listening:
    async def run() -> Listening:
        one = Listening(workers)
        work = asyncio.create_task(one.listener.run())
        try:
            await asyncio.wait_for(scene(one), 30)
        finally:
            work.cancel()
            await settled()
        one.held = [held.cancelled() for held in one.stage.held]
        return one

    return asyncio.run(run())


def whole(samples: Samples) -> list[Update]:
    """What one transcript of all of it tells."""
    live = LiveTranscript(LoudVad())
    live.push(samples)
    live.finish()
    job = live.next_job()
    assert job is not None
    return live.apply(job, hear(job)) + live.settle()


async def begun(one: Listening) -> None:
    """Past the first answer, which says how many workers there are."""
    await one.speak(8)
    await one.let_go()


def test_a_step_later_another_one_is_made_beside_it_but_no_third() -> None:
    async def scene(one: Listening) -> None:
        await begun(one)
        await one.speak(10)
        assert one.stage.beside == [False, False, True]
        await one.let_go(1)
        await one.speak(2)
        assert one.stage.beside == [False, False, True, True]
        await one.let_go(0)
        await one.speak(2)
        assert one.stage.beside == [False, False, True, True, False], "the batches are free"

    listening(scene)


@pytest.mark.parametrize("workers", [None, 1])
def test_a_stage_with_one_worker_is_asked_for_one_at_a_time(workers: int | None) -> None:
    async def scene(one: Listening) -> None:
        await begun(one)
        await one.speak(10)
        assert one.stage.beside == [False, False]

    listening(scene, workers)


@pytest.mark.parametrize("role", ["stt", "llm", "tts"])
def test_nothing_is_made_beside_while_others_are_answered(role: str) -> None:
    async def scene(one: Listening) -> None:
        await begun(one)
        one.models.outstanding[role] += 1
        await one.speak(5)
        assert len(one.stage.waiting) == 1
        one.models.outstanding[role] -= 1
        await one.speak(2)
        assert len(one.stage.waiting) == 2

    listening(scene)


@pytest.mark.parametrize("order", [[0, 0], [1, 0]])
def test_the_words_are_the_same_in_whatever_order_the_transcripts_come(order: list[int]) -> None:
    async def scene(one: Listening) -> None:
        await begun(one)
        while one.position < SPEECH.size:
            await one.speak(3)
            for number in order:
                if number < len(one.stage.waiting):
                    await one.let_go(number)
        assert sum(one.stage.beside) > 5
        assert await one.end() == text_of(whole(SPEECH))

    listening(scene)


def test_one_beside_that_fails_is_nobodys_business_and_none_is_tried_until_one_answers() -> None:
    async def scene(one: Listening) -> None:
        await begun(one)
        await one.speak(1)
        one.stage.is_down = True
        await one.speak(10)
        assert one.stage.beside == [False, False, True], "once, not at every step"
        assert one.failed == []
        one.stage.is_down = False
        await one.let_go()
        await one.speak(3)
        assert one.stage.beside[-2:] == [False, True]

    listening(scene)


async def overtaken(one: Listening) -> list[asyncio.Future[None]]:
    """Words, and beside them the end that they are in too."""
    await begun(one)
    one.models.outstanding["llm"] += 1
    await one.speak(4)
    one.listener.finish()
    await settled()
    return one.stage.waiting


@pytest.mark.parametrize("is_end_lost", [False, True])
def test_words_that_an_end_has_overtaken_are_not_tried_again(is_end_lost: bool) -> None:
    async def scene(one: Listening) -> None:
        words, end = await overtaken(one)
        words.set_exception(UnavailableError("killed"))
        await settled()
        assert one.stage.waiting == [end], "they are in it too"
        if is_end_lost:
            end.set_exception(UnavailableError("killed"))
            await settled()
            assert len(one.stage.waiting) == 1, "at once: nothing runs that it would wait for"
        assert one.failed == []
        assert await one.end() == text_of(whole(SPEECH[: one.position]))

    listening(scene)


def test_nor_are_words_that_an_end_overtook_before_they_failed() -> None:
    async def scene(one: Listening) -> None:
        words, end = await overtaken(one)
        end.set_result(None)
        await settled()
        words.set_exception(UnavailableError("killed"))
        await settled()
        assert (one.failed, one.stage.waiting) == ([], [])
        assert await one.end() == text_of(whole(SPEECH[: one.position]))
        assert len(one.stage.held) == 3

    listening(scene)


def test_nor_those_that_it_overtakes_while_they_wait_to_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening_module, "AGAIN_AFTER_S", 0.05)

    async def scene(one: Listening) -> None:
        await begun(one)
        one.models.outstanding["llm"] += 1
        await one.speak(4)
        (words,) = one.stage.waiting
        words.set_exception(UnavailableError("killed"))
        await settled()
        one.models._workers = 2  # another session has been told so
        one.listener.finish()
        await settled()
        (end,) = one.stage.waiting
        await soon(lambda: len(one.listener._running) == 1)
        assert one.stage.waiting == [end]
        assert len(one.failed) == 1
        assert await one.end() == text_of(whole(SPEECH[: one.position]))

    listening(scene)


def test_nothing_goes_on_once_nobody_listens() -> None:
    async def scene(one: Listening) -> None:
        await begun(one)
        await one.speak(5)
        assert len(one.stage.waiting) == 2

    assert listening(scene).held == [False, True, True]


@pytest.mark.parametrize("answer", [None, [], "2", {"workers": "2"}, {"workers": None}, {}])
def test_an_answer_that_does_not_say_how_many_workers_there_are_means_one(answer: Any) -> None:
    assert whisper.workers_of(answer) == 1
