"""An answer is begun in a pause, and nobody hears of it before the pause has ended the turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import sounds
from served import until
from talker import Talker
from test_voice_sessions import APP, check, with_mark
from test_voice_sessions import asked as noted
from voice_app import VoiceApp

from preroll.voice.answering import Answer
from preroll.voice.awaited import Awaited
from preroll.voice.history import History
from preroll.voice.models import Models, Said
from preroll.voice.playing import Player

pytestmark = pytest.mark.models
# Marks whose answers have the default rate (see `check`): 4, 7, 10.
PAUSE = "/v1/talk?silence_ms=2000"
"""So long that whatever is begun in a pause is there before it ends."""


class Asked:
    """A running app, and what its language model was asked for."""

    def __init__(self, app: VoiceApp, log: Path) -> None:
        self.app = app
        self._log = log

    @property
    def all(self) -> list[dict[str, Any]]:
        return noted(self._log)


def running(folder: Path, options: str = "", more: str = "") -> Iterator[Asked]:
    options = f'options = {{ log = "{folder / "log"}" {options} }}'
    text = APP.replace('class = "marked:Thinking"', f'class = "marked:Thinking"\n{options}')
    with VoiceApp(folder / "state", text + more) as app:
        yield Asked(app, folder / "log")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    yield from running(tmp_path_factory.mktemp("preempted"))


def kinds(session: Talker) -> list[str]:
    """Of all messages, in their order; audio is one of them."""
    return ["audio" if r.audio else r.message["type"] for r in session.received]


async def paused(
    asked: Asked, speech: sounds.Samples, then: Callable[[Talker], Awaitable[object]]
) -> Talker:
    """Says something, is silent until the language model is asked once more, and then …"""
    before = len(asked.all)
    async with Talker(asked.app.socket_url + PAUSE) as session:
        await session.speak(speech)
        await session.speak(sounds.silence(0.02), until=lambda: len(asked.all) > before)
        await then(session)
    return session


async def one_turn(asked: Asked, speech: sounds.Samples) -> Talker:
    async with Talker(asked.app.socket_url + PAUSE) as session:
        await session.speak(speech, until=ended(session))
    return session


def ended(session: Talker) -> Callable[[], bool]:
    return lambda: session.has("answer_ended")


def test_an_answer_begun_in_the_pause_is_kept_back_until_it_ends(
    asked: Asked, hello: sounds.Samples
) -> None:
    before = len(asked.all)

    async def wait(session: Talker) -> None:
        assert not {"speech_stopped", "transcript", "text", "audio"} & set(kinds(session))
        await session.speak(sounds.silence(0.02), until=ended(session))

    session = asyncio.run(paused(asked, with_mark(hello, 4), wait))
    check(session, 4)
    assert len(asked.all) == before + 1
    order = ("speech_stopped", "transcript", "answer_started", "text", "audio", "audio_end")
    firsts = [kinds(session).index(kind) for kind in order]
    assert firsts == sorted(firsts)
    ms = session.messages("timings")[0]["ms"]
    assert ms["transcript"] <= ms["llm_sent"] <= ms["tts_first_audio"] < ms["decided"]
    assert ms["decided"] <= ms["first_byte"]


def test_speech_that_goes_on_throws_it_away_and_is_answered_once(
    asked: Asked, hello: sounds.Samples
) -> None:
    before = len(asked.all)

    async def go_on(session: Talker) -> None:
        await session.speak(with_mark(hello, 7), until=ended(session))

    session = asyncio.run(paused(asked, with_mark(hello, 7), go_on))
    check(session, 7)
    assert len(session.messages("transcript")) == len(session.messages("answer_started")) == 1
    assert not session.messages("interrupted")
    said = [one["messages"] for one in asked.all[before:]]
    assert len(said) >= 2
    assert all([m["role"] for m in messages] == ["system", "user"] for messages in said)


def test_settings_of_the_pause_hold_for_the_answer(asked: Asked, hello: sounds.Samples) -> None:
    async def change(session: Talker) -> None:
        await session.send({"type": "settings", "instructions": "Be brief."})
        await session.speak(sounds.silence(0.02), until=ended(session))

    asyncio.run(paused(asked, with_mark(hello, 10), change))
    assert asked.all[-1]["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("how", ["close", "vanish"])
def test_who_leaves_in_the_pause_leaves_nothing_behind(
    tmp_path_factory: pytest.TempPathFactory, hello: sounds.Samples, how: str
) -> None:
    def busy(app: VoiceApp) -> bool:
        return any(s["in_flight"] for n, s in app.ps()["stages"].items() if n != "voice")

    for asked in running(tmp_path_factory.mktemp("left"), ", interval_s = 30"):

        async def leave(session: Talker, app: VoiceApp = asked.app) -> None:
            assert busy(app)
            if how == "vanish":
                session.vanish()

        asyncio.run(paused(asked, with_mark(hello, 10), leave))
        until(lambda app=asked.app: not busy(app), "slots are free")


def test_what_failed_in_the_pause_is_tried_again_and_not_told(
    tmp_path_factory: pytest.TempPathFactory, hello: sounds.Samples
) -> None:
    for asked in running(tmp_path_factory.mktemp("failing"), ", failures = 1"):
        session = asyncio.run(one_turn(asked, with_mark(hello, 10)))
        check(session, 10)
        assert not session.messages("error") and len(asked.all) == 2


def test_without_it_nothing_is_asked_before_the_turn_is_decided(
    tmp_path_factory: pytest.TempPathFactory, hello: sounds.Samples
) -> None:
    folder = tmp_path_factory.mktemp("without")
    for asked in running(folder, more="preemptive_generation = false\n"):
        session = asyncio.run(one_turn(asked, with_mark(hello, 10)))
        assert len(asked.all) == 1
        ms = session.messages("timings")[0]["ms"]
        assert ms["decided"] <= ms["llm_sent"]


class Scripted:
    """A language model that writes these, and a voice that says anything in a tenth of a second."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.awaited = Awaited()

    async def chat(self, *_: object) -> AsyncIterator[str]:
        for text in self.texts:
            yield text

    async def say(self, *_: object, **__: object) -> AsyncIterator[Said]:
        yield Said(np.full(2_400, 0.5, np.float32), 24_000, 2_400)


@pytest.mark.parametrize("texts", [[], ["Yes, of course."], ["One. ", "Two. ", "Three."]])
def test_nothing_is_told_before_it_is_wanted(texts: list[str]) -> None:
    told: list[str] = []

    async def tell(message: Any) -> None:
        told.append("audio" if isinstance(message, bytes) else message["type"])
        await asyncio.sleep(0)

    async def run() -> None:
        scripted = Scripted(texts)
        models = cast(Models, scripted)
        player = Player(tell, 24_000, 1.0)
        answer = Answer(1, History().with_user("Hello"), "", models, tell, player, 1.0)
        work = asyncio.create_task(answer.run())
        for _ in range(200):
            await asyncio.sleep(0)
        assert not told and not work.done() and player.sent_s == 0.0
        assert not scripted.awaited, "all of it is made"
        await answer.want()
        await work

    asyncio.run(run())
    assert told[:1] == ["answer_started"] and told[-1] == "audio_end"
    assert told[1 : 1 + len(texts)] == ["text"] * len(texts)
    assert ("audio" in told) is bool(texts)
