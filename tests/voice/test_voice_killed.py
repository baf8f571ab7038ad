"""Processes killed in the middle of a turn: what a client sees, and that the next turn works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator

import pytest
import sounds
from served import until
from talker import Talker
from voice_app import VoiceApp
from websockets.exceptions import ConnectionClosed

pytestmark = pytest.mark.models
BROKEN_OFF = 1006
"""The connection ended without a farewell. 1011 and 1012: the server said that it failed."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VoiceApp]:
    with VoiceApp(tmp_path_factory.mktemp("killed") / "state") as running:
        yield running


def kill(app: VoiceApp, stage: str) -> int:
    """Kills the replica of a stage; its process id."""
    found = [r["pid"] for r in app.ps()["replicas"] if r["stage"] == stage and r.get("pid")]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return int(found[0])


def replicas(app: VoiceApp, stage: str) -> list[int]:
    return [r["pid"] for r in app.ps()["replicas"] if r["stage"] == stage and r.get("pid")]


def is_idle(app: VoiceApp) -> bool:
    stages = app.ps()["stages"]
    held = [stages[name]["in_flight"] + stages[name]["queued"] for name in ("stt", "llm", "tts")]
    return not any(held) and not stages["voice"]["sessions"]


@pytest.mark.parametrize("stage", ["stt", "llm", "tts"])
def test_a_stage_killed_in_a_turn_is_an_error_and_the_next_turn_works(
    app: VoiceApp, hello: sounds.Samples, stage: str
) -> None:
    moment = {"stt": "speech_started", "llm": "transcript", "tts": "text"}[stage]

    async def talk() -> Talker:
        async with Talker(f"{app.socket_url}/v1/talk") as session:
            saying = asyncio.create_task(
                session.speak(
                    hello, until=lambda: session.has("answer_ended") or session.has("error")
                )
            )
            await session.wait(moment)
            await asyncio.to_thread(kill, app, stage)
            await saying
            until_ready = asyncio.to_thread(
                until, lambda: app.status(f"/readyz/{stage}") == 200, "restarted", 60
            )
            await until_ready
            if session.has("answer_started") and not session.has("answer_ended"):
                await session.speak(sounds.silence(0.1), until=lambda: session.has("answer_ended"))
            before = len(session.received)
            await session.speak(hello, until=lambda: session.has("answer_ended", before))
            assert session.audio(before).size
        return session

    session = asyncio.run(talk())
    failed = session.messages("error")
    assert not failed or failed[0]["stage"] == stage


@pytest.mark.parametrize("moment", ["speech_started", "transcript", "text", "audio"])
def test_a_voice_service_that_is_killed_ends_its_sessions_and_the_next_turn_works(
    app: VoiceApp, hello: sounds.Samples, moment: str
) -> None:
    async def killed() -> Talker:
        async with Talker(f"{app.socket_url}/v1/talk") as session:

            def reached() -> bool:
                return bool(session.audio().size) if moment == "audio" else session.has(moment)

            await session.speak(hello, until=reached)
            gone = await asyncio.to_thread(kill, app, "voice")
            # Who goes on talking learns of it, and waits for nothing.
            with contextlib.suppress(ConnectionClosed):
                await session.speak(hello, until=lambda: session.has("closed"))
            await session.wait("closed")
            until_new = asyncio.to_thread(
                until,
                lambda: app.status("/readyz/voice") == 200 and gone not in replicas(app, "voice"),
                "the voice service runs again",
                60,
            )
            await until_new
        return session

    async def answered() -> Talker:
        async with Talker(f"{app.socket_url}/v1/talk") as session:
            await session.speak(
                hello, until=lambda: session.has("answer_ended") or session.has("closed")
            )
        return session

    session = asyncio.run(killed())
    assert session.has(moment) or moment == "audio"
    assert session.messages("closed")[0]["code"] in (BROKEN_OFF, 1011, 1012)
    assert not session.has("answer_ended")
    until(lambda: is_idle(app), "no stage holds a slot for a session that is gone")
    assert asyncio.run(answered()).audio().size


def test_a_live_transcription_that_is_killed_ends_and_frees_its_slots(
    app: VoiceApp, hello: sounds.Samples
) -> None:
    async def killed() -> Talker:
        async with Talker(f"{app.socket_url}/v1/audio/transcriptions/stream") as session:
            await session.speak(hello, until=lambda: session.has("partial"))
            await asyncio.to_thread(kill, app, "voice")
            await session.wait("closed")
        return session

    session = asyncio.run(killed())
    assert not session.has("done")
    until(lambda: is_idle(app), "no stage holds a slot for a session that is gone")
    until(lambda: app.status("/readyz/voice") == 200, "the voice service runs again", 60)
