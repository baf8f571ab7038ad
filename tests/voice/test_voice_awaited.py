"""What is made ahead stands back for those who wait in silence, for a while, and nothing is lost
by it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from test_voice_beside import SPEECH, Listening, begun, listening, settled, soon, whole
from test_voice_live import text_of
from test_voice_parts import Voice, texts

from preroll.voice import listening as listening_module
from preroll.voice.awaited import MOST_S, Awaited
from preroll.voice.lead import AMPLE_S, SHORT_S, Lead
from preroll.voice.listening import STAND_BACK_S
from preroll.voice.models import Call, ModelError, Said
from preroll.voice.saying import AHEAD, Saying


class Clock:
    """Time that passes when it is told to, for the loop's timers too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


# Who waits -------------------------------------------------------------------------------------


def test_everybody_must_have_ended_before_nobody_waits() -> None:
    awaited = Awaited()
    assert not awaited
    awaited.begin("a")
    awaited.begin("a")
    with pytest.raises(ZeroDivisionError), awaited.while_in("b"):
        awaited.end("a")
        assert awaited
        awaited.end("nobody")
        raise ZeroDivisionError
    assert not awaited
    awaited.end("a")
    assert not awaited


def test_who_waits_for_long_waits_for_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that hangs, or a client that does not read, holds nobody back for good."""

    async def scene() -> None:
        clock = Clock(monkeypatch)
        awaited = Awaited()
        awaited.begin("a")
        clock.now_s += 0.9 * MOST_S
        assert awaited
        awaited.begin("a")  # it has waited all the time
        clock.now_s += 0.2 * MOST_S
        assert not awaited
        await awaited.stand_back(600.0)
        awaited.begin("b")
        assert awaited

    asyncio.run(scene())


def test_standing_back_ends_when_nobody_waits_or_when_it_has_been_long_enough() -> None:
    async def scene() -> None:
        awaited = Awaited()
        for most_s in (-1.0, 60.0):
            await awaited.stand_back(most_s)  # for nobody
        awaited.begin("a")
        for most_s in (-1.0, 0.0, 0.01):
            await awaited.stand_back(most_s)
        standing = asyncio.create_task(awaited.stand_back(60.0))
        await settled()
        assert not standing.done()
        awaited.end("a")
        await settled()
        assert standing.done()

    asyncio.run(scene())


# Words that are only shown ---------------------------------------------------------------------


@contextlib.contextmanager
def awaited_by(one: Listening) -> Iterator[None]:
    with one.models.awaited.while_in("another session"):
        yield


async def with_words_held_back(one: Listening) -> int:
    """The last tenths of a second are not in any transcript yet. Gives how many there were."""
    await begun(one)
    await one.let_go()
    asked = len(one.stage.beside)
    with awaited_by(one):
        await one.speak(6)
        assert len(one.stage.beside) == asked
    return asked


def test_words_that_are_shown_wait_for_those_who_wait_in_silence() -> None:
    async def scene(one: Listening) -> None:
        asked = await with_words_held_back(one)
        await one.speak(1)
        assert len(one.stage.beside) > asked

    async def first_words(one: Listening) -> None:
        with awaited_by(one):
            await one.speak(8)
            assert one.stage.beside == []

    listening(scene)
    listening(first_words)


def test_they_are_asked_for_although_no_more_audio_comes() -> None:
    async def scene(one: Listening) -> None:
        asked = await with_words_held_back(one)
        await soon(lambda: len(one.stage.beside) > asked)

    listening(scene)


def test_they_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(one: Listening) -> None:
        clock = Clock(monkeypatch)
        await begun(one)
        await one.let_go()
        clock.now_s += 2 * STAND_BACK_S
        await one.speak(2)
        await one.let_go()
        asked = len(one.stage.beside)
        with awaited_by(one):
            await one.speak(3)
            assert len(one.stage.beside) == asked, "the last one is not that long ago"
            clock.now_s += 1.1 * STAND_BACK_S
            await one.speak(1)
            assert len(one.stage.beside) > asked

    listening(scene)


def test_an_end_waits_for_nobody_and_is_waited_for() -> None:
    async def scene(one: Listening) -> None:
        await begun(one)
        await one.let_go()
        assert not one.models.awaited, "words on their way are only shown"
        with awaited_by(one):
            await one.speak(6)
            one.listener.finish()
            await settled()
            assert len(one.stage.waiting) == 1
            assert one.stage.beside[-1] is False, "there is nothing to overtake"
        assert one.models.awaited
        await one.let_go()
        assert not one.models.awaited
        await one.end()

    listening(scene)


def test_an_end_that_fails_or_is_left_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "AGAIN_AFTER_S", 0.0)

    async def fails(one: Listening) -> None:
        await with_words_held_back(one)
        one.stage.is_down = True
        one.listener.finish()
        await one.listener.drain()
        assert len(one.failed) == 1
        assert not one.models.awaited

    async def leaves(one: Listening) -> None:
        await with_words_held_back(one)
        one.listener.finish()
        await settled()
        assert one.models.awaited

    listening(fails)
    assert not listening(leaves).models.awaited


@pytest.mark.parametrize(("workers", "is_beside"), [(2, True), (1, False)])
def test_an_end_overtakes_another_session_where_there_is_a_worker(
    workers: int, is_beside: bool
) -> None:
    async def scene(one: Listening) -> None:
        other = Listening(beside=one)
        await with_words_held_back(one)
        work = asyncio.create_task(other.listener.run())
        one.models.outstanding["llm"] += 1  # so that the other one makes no second one beside
        await other.speak(8)
        asked = len(one.stage.beside)
        assert len(one.stage.waiting) == 1
        one.listener.finish()
        await settled()
        assert one.stage.beside[asked:] == [is_beside]
        work.cancel()
        await settled()

    listening(scene, workers)


@pytest.mark.parametrize(("workers", "asked"), [(2, [False, False, True]), (1, [False, False])])
def test_an_end_overtakes_words_before_it_although_others_are_answered(
    workers: int, asked: list[bool]
) -> None:
    async def scene(one: Listening) -> None:
        await begun(one)
        one.models.outstanding["llm"] += 1
        await one.speak(4)
        assert one.stage.beside == [False, False]
        one.listener.finish()
        await settled()
        assert one.stage.beside == asked
        assert await one.end() == text_of(whole(SPEECH[: one.position]))

    listening(scene, workers)


# Answers ---------------------------------------------------------------------------------------


def test_an_answer_is_awaited_until_there_is_enough_to_play(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        clock = Clock(monkeypatch)
        awaited = Awaited()
        one = Lead(awaited)
        one.begin()
        assert one.is_short and awaited
        one.made(0.6 * SHORT_S)
        assert one.is_short and awaited
        clock.now_s += 0.1 * SHORT_S
        one.made(0.6 * SHORT_S)
        assert not one.is_short and not awaited
        clock.now_s += 60.0  # all of it was played, and a pause was borne
        assert one.is_short
        one.made(1.1 * SHORT_S)
        assert not one.is_short and not awaited
        clock.now_s += 0.2 * SHORT_S
        await one.make_room()
        assert one.is_short and awaited
        one.end()
        assert not awaited

    asyncio.run(scene())


def test_an_answer_is_awaited_again_before_its_audio_runs_out() -> None:
    async def scene() -> None:
        awaited = Awaited()
        one, other = Lead(awaited), Lead(awaited)
        one.made(SHORT_S + 0.02)
        assert not awaited
        await soon(lambda: bool(awaited))
        one.end()
        other.made(SHORT_S + 0.01)
        other.end()
        await asyncio.sleep(0.05)
        assert not awaited, "nobody wants more of it"

    asyncio.run(scene())


def test_more_is_made_at_once_unless_there_is_plenty_and_others_wait() -> None:
    async def stands_back(made_s: float, others: bool) -> bool:
        awaited = Awaited()
        one = Lead(awaited)
        one.made(made_s)
        if others:
            awaited.begin("another session")
        task = asyncio.create_task(one.make_room())
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        is_standing = not task.done()
        one.end()
        awaited.end("another session")
        await task
        return is_standing

    async def scene() -> list[bool]:
        return [
            await stands_back(AMPLE_S + 5.0, True),
            await stands_back(AMPLE_S + 5.0, False),
            await stands_back(AMPLE_S - 0.1, True),
            await stands_back(0.1, True),
        ]

    assert asyncio.run(scene()) == [True, False, False, False]


class Urgency(Voice):
    """What of a text was urgent, and whether the answer was awaited when it was asked for."""

    def __init__(self, part_s: float, parts: int, fails: bool = False) -> None:
        super().__init__(part_s, parts, fails=fails)
        self.urgent: list[bool] = []
        self.was_awaited: list[bool] = []

    async def say(
        self, text: str, speed: float, told: Callable[[Call], None], *, is_urgent: bool = False
    ) -> AsyncIterator[Said]:
        self.urgent.append(is_urgent)
        self.was_awaited.append(bool(self.awaited))
        async for said in super().say(text, speed, told, is_urgent=is_urgent):
            yield said


SENTENCES = ("This is the first sentence. ", "This is the second one. ", "This is the last one.")


@pytest.mark.parametrize(
    ("part_s", "urgent"), [(0.1, [True, True, True]), (0.9, [True, False, False])]
)
def test_a_clause_is_urgent_while_there_is_little_to_play(
    part_s: float, urgent: list[bool]
) -> None:
    async def written(voice: Urgency) -> AsyncIterator[str]:
        assert voice.awaited, "before there is a word"
        for sentence in SENTENCES:
            yield sentence

    async def scene() -> Urgency:
        voice = Urgency(part_s, 2)
        async for _ in Saying(voice).pieces(written(voice)):  # type: ignore[arg-type]
            pass
        return voice

    voice = asyncio.run(scene())
    assert voice.urgent == voice.was_awaited == urgent
    assert not voice.awaited


def test_later_clauses_stand_back_for_somebody_s_first_and_all_are_said() -> None:
    async def scene() -> None:
        voice = Urgency(0.9, 4)
        pieces = Saying(voice).pieces(texts(*SENTENCES))  # type: ignore[arg-type]
        with voice.awaited.while_in("another session"):
            await anext(pieces)
            await settled()
            assert len(voice.asked) == 1
        rest = [piece async for piece in pieces]
        assert len(voice.asked) == len(SENTENCES)
        assert "".join(p.text for p in rest).endswith("last one.")

    asyncio.run(scene())


def test_nobody_waits_for_an_answer_that_is_not_taken_or_was_left() -> None:
    """A client that has stopped reading must not make all others stand back."""

    async def scene(sentences: int, fails: bool) -> Urgency:
        voice = Urgency(0.05, 1, fails)
        some = (f"This is the sentence number {i} of many. " for i in range(sentences))
        pieces = Saying(voice).pieces(texts(*some))  # type: ignore[arg-type]
        with contextlib.suppress(ModelError):
            await anext(pieces)
            for _ in range(20):
                await settled()
            if not fails:
                assert len(voice.asked) == min(AHEAD, sentences)
                assert not voice.awaited
            await anext(pieces)
        await pieces.aclose()
        return voice

    for sentences, fails in ((20, False), (2, False), (20, True)):
        assert not asyncio.run(scene(sentences, fails)).awaited


def test_nobody_waits_once_the_language_model_has_failed() -> None:
    async def failing() -> AsyncIterator[str]:
        yield "Well. And"
        raise ModelError("llm", RuntimeError("it broke"))

    async def scene() -> Any:
        voice = Urgency(0.05, 1)
        with pytest.raises(ModelError, match="it broke"):
            async for _ in Saying(voice).pieces(failing()):  # type: ignore[arg-type]
                pass
        return voice

    assert not asyncio.run(scene()).awaited
