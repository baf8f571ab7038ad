"""Many sessions at once: none ever gets a byte of another's, and each has its own settings."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sounds
from served import until
from talker import Talker
from voice_app import VoiceApp

pytestmark = pytest.mark.models
HERE = Path(__file__).parent
sys.path.append(str(HERE / "marked"))

import marked  # noqa: E402

APP = f"""
[serve]
listen = "127.0.0.1:8322"
[stage.stt]
engine = "python"
class = "marked:Hearing"
cwd = "{HERE / "marked"}"
max_concurrency = 16
queue = {{ max_wait = "60s" }}
[stage.llm]
engine = "python"
class = "marked:Thinking"
cwd = "{HERE / "marked"}"
max_concurrency = 4
queue = {{ max_wait = "60s" }}
[stage.tts]
engine = "python"
class = "marked:Speaking"
cwd = "{HERE / "marked"}"
max_concurrency = 1
queue = {{ max_wait = "60s" }}
[voice]
"""
CHUNK = 1_600


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VoiceApp]:
    with VoiceApp(tmp_path_factory.mktemp("marked") / "state", APP) as running:
        yield running


def with_mark(speech: sounds.Samples, mark: int) -> sounds.Samples:
    hz = marked.HEARD_FROM_HZ + marked.STEP_HZ * mark
    return (
        speech * 0.8 + sounds.tone(speech.size / 16_000 + 1, hz=hz, level=0.03)[: speech.size]
    ).astype(np.float32)


async def converse(
    app: VoiceApp, speech: sounds.Samples, mark: int, turns: int, **settings: str
) -> Talker:
    """Each session has another rate for its answer, so settings that leak are seen as well."""
    rate_hz = (16_000, 24_000, 48_000)[mark % 3]
    async with Talker(f"{app.socket_url}/v1/talk?output_rate={rate_hz}") as session:
        if settings:
            await session.send({"type": "settings", **settings})
        data = sounds.s16(with_mark(speech, mark))
        for _ in range(turns):
            before = len(session.received)
            at = 0
            while not session.has("answer_ended", before) and not session.has("closed"):
                chunk = data[at : at + 2 * CHUNK].ljust(2 * CHUNK, b"\0")
                at += 2 * CHUNK
                await session.send(chunk)
                await asyncio.sleep(0.1)
    return session


def check(session: Talker, mark: int) -> None:
    rate_hz = (16_000, 24_000, 48_000)[mark % 3]
    said = [m["text"] for m in session.messages("transcript")]
    assert said
    assert all(text == f"mark {mark}" for text in said), (mark, said)
    answers = "".join(m["text"] for m in session.messages("text"))
    assert answers == f"The answer is {mark}." * len(said)
    assert all(m["rate"] == rate_hz for m in session.messages("answer_started"))
    audio = session.audio()
    assert audio.size > 0.4 * rate_hz
    size = rate_hz // 5
    for at in range(0, audio.size - size, size):
        piece = audio[at : at + size]
        if sounds.rms(piece) > 0.1:
            assert marked.mark_of(piece, rate_hz, marked.SAID_FROM_HZ) == mark


def test_sixty_four_sessions_never_exchange_a_byte(app: VoiceApp, hello: sounds.Samples) -> None:
    async def all_at_once() -> list[Talker]:
        return await asyncio.gather(
            *(converse(app, hello, mark, 1) for mark in range(marked.MARKS))
        )

    for mark, session in enumerate(asyncio.run(all_at_once())):
        check(session, mark)


def test_turns_of_one_session_stay_its_own(app: VoiceApp, hello: sounds.Samples) -> None:
    async def few() -> list[Talker]:
        return await asyncio.gather(*(converse(app, hello, mark, 3) for mark in (3, 40)))

    for mark, session in zip((3, 40), asyncio.run(few()), strict=True):
        check(session, mark)
        assert len(session.messages("transcript")) == 3


def test_a_client_that_stops_reading_keeps_nothing_and_nobody_else_waits(
    app: VoiceApp, hello: sounds.Samples
) -> None:
    async def deaf() -> Talker:
        async with Talker(f"{app.socket_url}/v1/talk") as stuck:
            stuck.stop_reading()
            await stuck.speak(with_mark(hello, 5))
            other = await converse(app, hello, 6, 1)
            stuck.vanish()
        return other

    check(asyncio.run(deaf()), 6)
    stages = ("stt", "llm", "tts")
    until(lambda: all(app.ps()["stages"][s]["in_flight"] == 0 for s in stages), "slots are free")
    until(lambda: app.ps()["stages"]["voice"]["sessions"] == 0, "the session is over")


TAIL = (
    " So it was said, and so it is meant, and nobody who was there would say anything else of it."
)
MOST_CHARS = 330


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VoiceApp, Path]]:
    """A model that takes little, and a history that keeps less; what the model was asked for."""
    folder = tmp_path_factory.mktemp("forgetful")
    options = (
        f'options = {{ most_chars = {MOST_CHARS}, tail = "{TAIL}", log = "{folder / "log"}" }}'
    )
    text = APP.replace('class = "marked:Thinking"', f'class = "marked:Thinking"\n{options}')
    with VoiceApp(folder / "state", text + "max_history_chars = 200\n") as running:
        yield running, folder / "log"


def asked(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_what_a_shorter_history_begins_with_is_read_before_it_is_needed(
    forgetful: tuple[VoiceApp, Path], hello: sounds.Samples
) -> None:
    app, log = forgetful
    before = len(asked(log))
    session = asyncio.run(converse(app, hello, 7, 3))
    assert not session.messages("error")
    notes = asked(log)[before:]
    first, second, ahead, third, *_ = [one for one in notes if "is_cancelled" not in one]
    assert [len(b["messages"]) for b in (first, second, ahead, third)] == [2, 4, 3, 4]
    assert any("is_cancelled" in one for one in notes), "the turn does not wait for it"
    assert second["messages"][:2] == first["messages"]
    assert ahead["max_tokens"] == 1 and ahead["messages"] == third["messages"][:3]
    assert third["messages"][1:3] == [
        second["messages"][3],
        {"role": "assistant", "content": f"The answer is 7.{TAIL}"},
    ]


def test_it_is_read_after_an_answer_that_was_cancelled_too(
    forgetful: tuple[VoiceApp, Path], hello: sounds.Samples
) -> None:
    app, log = forgetful
    before = len(asked(log))

    def read_ahead() -> list[dict[str, Any]]:
        return [one for one in asked(log)[before:] if one.get("max_tokens") == 1]

    async def cancelled() -> Talker:
        async with Talker(f"{app.socket_url}/v1/talk") as session:
            data = sounds.s16(with_mark(hello, 10))
            for kind in ("answer_ended", "audio_end"):
                start, at = len(session.received), 0
                while not session.has(kind, start):
                    await session.send(data[at : at + 2 * CHUNK].ljust(2 * CHUNK, b"\0"))
                    at += 2 * CHUNK
                    await asyncio.sleep(0.1)
            # All of it is sent and a second of it is still to be played.
            assert not read_ahead()
            await session.send({"type": "heard", "turn": 2, "ms": 60_000})
            await session.send({"type": "cancel"})
            await asyncio.to_thread(until, read_ahead, "the shorter history is read")
        return session

    session = asyncio.run(cancelled())
    assert session.messages("interrupted") and not session.messages("error")
    (ahead,) = read_ahead()
    assert [one["role"] for one in ahead["messages"]] == ["system", "user", "assistant"]


def test_a_conversation_too_long_for_the_model_goes_on(
    forgetful: tuple[VoiceApp, Path], hello: sounds.Samples
) -> None:
    app, log = forgetful
    before = len(asked(log))
    instructions = "x" * (MOST_CHARS - 110)
    session = asyncio.run(converse(app, hello, 8, 3, instructions=instructions))
    assert not session.messages("error")
    assert len(session.messages("answer_ended")) == 3
    answered = [b for b in asked(log)[before:] if b["messages"] and b["max_tokens"] != 1]
    assert [len(b["messages"]) for b in answered] == [2, 2, 2]
    assert all(b["messages"][0]["content"] == instructions for b in answered)


def test_instructions_too_long_for_the_model_are_an_error_of_the_turn(
    forgetful: tuple[VoiceApp, Path], hello: sounds.Samples
) -> None:
    app, _ = forgetful
    session = asyncio.run(converse(app, hello, 9, 1, instructions="x" * MOST_CHARS))
    (error,) = session.messages("error")
    assert error["stage"] == "llm" and "more than this model takes" in error["message"]
