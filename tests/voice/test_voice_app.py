"""The whole app on real models, over loopback: what clients of speech endpoints rely on."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import recordings
import sounds
from served import until
from talker import Talker
from voice_app import VoiceApp
from websockets.exceptions import InvalidStatus

from preroll.voice.decode import decode
from preroll.voice.trim import FirstAudible

pytestmark = pytest.mark.models
TEXT = "Hello there, this is a **test**. It has a second sentence as well."


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VoiceApp]:
    with VoiceApp(tmp_path_factory.mktemp("voice") / "state") as running:
        yield running


@pytest.fixture
def client(app: VoiceApp) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{app.url}/v1", api_key="none", max_retries=0, timeout=30) as made:
        yield made


@pytest.fixture(scope="module")
def recorded() -> list[recordings.Recording]:
    found = recordings.find()
    if not found:
        pytest.skip("no recordings; fetch them: make voice")
    return found


def speech(client: openai.OpenAI, form: str, **more: Any) -> tuple[bytes, Any]:
    with client.audio.speech.with_streaming_response.create(
        model="tts", voice="alloy", input=more.pop("input", TEXT), response_format=form, **more
    ) as answer:
        return b"".join(answer.iter_bytes()), answer.headers


def wrong(client: openai.OpenAI, **more: Any) -> str:
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(**{"model": "tts", "voice": "a", "input": "Hi", **more})
    return str(caught.value)


# Speech ------------------------------------------------------------------------------------


def test_speech_starts_audible_and_is_as_long_in_every_format(client: openai.OpenAI) -> None:
    pcm, headers = speech(client, "pcm")
    assert len(pcm) % 2 == 0
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    assert 2.0 < samples.size / 24_000 < 8.0
    audible = FirstAudible(24_000)
    assert audible.push(samples)
    assert audible.position is not None
    assert audible.position < 0.06 * 24_000
    assert int(headers["x-preroll-trimmed-ms"]) >= 0
    for form in ("wav", "flac", "opus", "mp3", "aac"):
        data, _ = speech(client, form)
        # Piper's voice is drawn anew each time, so its length is not quite the same.
        length = sum(b.size for b in decode(data)) / 16_000
        assert length == pytest.approx(samples.size / 24_000, rel=0.35), form


def test_a_wav_answer_satisfies_a_strict_reader(client: openai.OpenAI) -> None:
    data, _ = speech(client, "wav")
    with wave.open(io.BytesIO(data)) as strict:
        assert strict.getframerate() == 24_000
        assert len(strict.readframes(strict.getnframes())) == len(data) - 44


def test_speech_as_events_carries_the_audio_and_both_numbers(
    app: VoiceApp, client: openai.OpenAI
) -> None:
    data, headers = speech(client, "pcm", stream_format="sse")
    assert headers["content-type"].startswith("text/event-stream")
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    audio = b"".join(
        base64.b64decode(e["audio"]) for e in events if e["type"] == "speech.audio.delta"
    )
    done = events[-1]
    assert done["type"] == "speech.audio.done"
    assert len(audio) == pytest.approx(2 * 24_000 * done["audio_s"], abs=100)
    assert {"trimmed_ms", "first_audible_ms"} <= done.keys()


@pytest.mark.parametrize("text", ["", "   ", "...", "😀🎉", "```\n```", "—!?"])
def test_nothing_sayable_is_told_so(client: openai.OpenAI, text: str) -> None:
    assert "at least one letter or digit" in wrong(client, input=text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"input": "x" * 4097}, "4097 characters"),
        ({"input": "y" * 100_000}, "100000 characters"),
        ({"response_format": "midi"}, "allowed: pcm, wav"),
        ({"speed": 9.0}, "0.25 to 4.0"),
        ({"extra_body": {"stream_format": "smoke"}}, "allowed: audio, sse"),
        ({"extra_body": {"input": 7}}, "input is 7"),
    ],
)
def test_wrong_fields_name_value_and_what_is_allowed(
    client: openai.OpenAI, fields: dict[str, Any], said: str
) -> None:
    assert said in wrong(client, **fields)


@pytest.mark.parametrize(
    "text",
    [
        "你好，世界。",
        "Ünïcödé 😀 works",
        "<b>Bold</b> & [link](http://x.org)",
        "a " * 2000,
        "1,234.5 + 6",
    ],
)
def test_odd_text_is_said_or_refused_and_never_an_empty_answer(
    client: openai.OpenAI, text: str
) -> None:
    try:
        data, _ = speech(client, "pcm", input=text)
    except openai.BadRequestError:
        return
    assert len(data) > 2_000


# Transcription -----------------------------------------------------------------------------


def test_recordings_are_understood(
    client: openai.OpenAI, recorded: list[recordings.Recording]
) -> None:
    wrong_words = total = 0
    for recording in recorded:
        heard = client.audio.transcriptions.create(model="whisper-1", file=recording.path)
        one, of = recordings.errors(recording.text, heard.text)
        wrong_words, total = wrong_words + one, total + of
    assert wrong_words / total <= 0.09


@pytest.mark.parametrize("rate_hz", [8_000, 44_100, 48_000])
def test_any_rate_and_container_is_heard(
    client: openai.OpenAI, recorded: list[recordings.Recording], rate_hz: int
) -> None:
    from preroll.voice.resample import resample

    recording = next(r for r in recorded if "brown" in r.text)
    samples = resample(recording.samples(), 16_000, rate_hz)
    stereo = np.repeat(samples, 2)
    for name, data in (
        ("a.wav", sounds.wav(sounds.s16(stereo), rate_hz, channels=2)),
        ("a.wav", sounds.wav(samples.astype("<f4").tobytes(), rate_hz, bits=32, form=3)),
        ("a.flac", sounds.encoded(samples, rate_hz, "flac", "flac")),
    ):
        heard = client.audio.transcriptions.create(model="w", file=(name, data))
        assert recordings.errors(recording.text, heard.text)[0] <= 2


def test_words_have_times_that_grow(
    client: openai.OpenAI, recorded: list[recordings.Recording]
) -> None:
    heard = client.audio.transcriptions.create(
        model="w",
        file=recorded[-1].path,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert heard.words is not None
    assert heard.segments is not None
    starts = [w.start for w in heard.words]
    assert starts == sorted(starts)
    assert starts[-1] < float(heard.duration)
    assert "".join(s.text for s in heard.segments).strip() == heard.text


def test_a_transcript_comes_as_events_and_as_text(
    client: openai.OpenAI, recorded: list[recordings.Recording]
) -> None:
    path = recorded[0].path
    plain = client.audio.transcriptions.create(model="w", file=path, response_format="text")
    events = list(client.audio.transcriptions.create(model="w", file=path, stream=True))
    deltas = [e.delta for e in events if e.type == "transcript.text.delta"]
    done = events[-1]
    assert done.type == "transcript.text.done"
    assert "".join(deltas) == done.text == str(plain).strip()


@pytest.mark.parametrize(
    "samples",
    [
        sounds.silence(3.0),
        sounds.noise(6.0, level=0.05),
        sounds.noise(2.0, level=0.3),
        sounds.tone(3.0),
        sounds.silence(0.001),
    ],
    ids=["silence", "noise", "loud noise", "tone", "a few samples"],
)
def test_what_is_no_speech_has_no_words(client: openai.OpenAI, samples: sounds.Samples) -> None:
    data = sounds.wav(sounds.s16(samples), 16_000)
    assert client.audio.transcriptions.create(model="w", file=("a.wav", data)).text == ""


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage" * 99, b"#EXTM3U\nfile:///etc/hostname"],
    ids=["empty", "garbage", "playlist"],
)
def test_what_is_no_audio_is_a_clear_400(client: openai.OpenAI, data: bytes) -> None:
    with pytest.raises(openai.BadRequestError, match="wav, flac, ogg"):
        client.audio.transcriptions.create(model="w", file=("a.wav", data))


def test_a_long_recording_is_heard_to_its_end(
    client: openai.OpenAI, recorded: list[recordings.Recording]
) -> None:
    pause = sounds.silence(1.0)
    parts = [p for _ in range(2) for r in recorded for p in (r.samples(), pause)]
    text = " ".join(r.text for _ in range(2) for r in recorded)
    data = sounds.wav(sounds.s16(np.concatenate(parts)), 16_000)
    heard = client.audio.transcriptions.create(model="w", file=("long.wav", data))
    wrong_words, total = recordings.errors(text, heard.text)
    assert wrong_words / total < 0.15


# Live transcription ------------------------------------------------------------------------

LIVE = "/v1/audio/transcriptions/stream"


async def live(app: VoiceApp, samples: sounds.Samples, query: str = "") -> Talker:
    async with Talker(f"{app.socket_url}{LIVE}{query}") as session:
        await session.speak(samples)
        await session.send({"type": "end"})
        await session.wait("closed")
    return session


def test_partials_come_while_speaking_and_finals_never_change(
    app: VoiceApp, recorded: list[recordings.Recording]
) -> None:
    recording = recorded[-1]
    session = asyncio.run(live(app, recording.samples()))
    finals = session.messages("final")
    done = session.messages("done")[0]
    assert "".join(f["text"] for f in finals).strip() == done["text"]
    assert session.messages("partial")
    assert recordings.errors(recording.text, done["text"])[0] <= 2
    before_end = [
        r for r in session.received if r.message.get("type") == "final" and not r.message["is_end"]
    ]
    assert before_end[0].at_s < session.received[-1].at_s - 0.5


def test_a_session_in_floats_at_another_rate_hears_the_same(
    app: VoiceApp, recorded: list[recordings.Recording]
) -> None:
    recording = recorded[0]

    async def talk() -> Talker:
        async with Talker(f"{app.socket_url}{LIVE}?rate=16000&format=f32le") as session:
            data = recording.samples().astype("<f4").tobytes()
            for i in range(0, len(data), 4_001):  # cut inside of samples
                await session.send(data[i : i + 4_001])
            await session.send({"type": "flush"})
            await session.wait("flushed")
            await session.send({"type": "end"})
            await session.wait("closed")
        return session

    session = asyncio.run(talk())
    assert recordings.errors(recording.text, session.messages("done")[0]["text"])[0] <= 1


def test_garbage_is_answered_and_does_not_end_a_session(app: VoiceApp) -> None:
    async def talk() -> Talker:
        async with Talker(f"{app.socket_url}{LIVE}") as session:
            for garbage in (
                "{",
                "[]",
                '{"type": 3}',
                '{"type": "audio", "data": "%%%"}',
                '{"type": "sing"}',
            ):
                await session.send(garbage)
            await session.send({"type": "audio", "data": base64.b64encode(bytes(640)).decode()})
            await session.send({"type": "end"})
            await session.wait("done")
        return session

    session = asyncio.run(talk())
    assert [e["code"] for e in session.messages("error")] == ["bad_message"] * 5


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?rate=7999", "7999"),
        ("?rate=x", "whole number"),
        ("?format=mp3", "s16le"),
        ("?colour=red", "unknown"),
        ("?silence_ms=1", "silence_s"),
    ],
)
def test_a_wrong_declaration_refuses_the_session(app: VoiceApp, query: str, said: str) -> None:
    async def connect() -> None:
        async with Talker(f"{app.socket_url}{LIVE}{query}"):
            pass

    with pytest.raises(InvalidStatus) as caught:
        asyncio.run(connect())
    assert caught.value.response.status_code == 400
    assert said in caught.value.response.body.decode()


# Talk ---------------------------------------------------------------------------------------


def hello(recorded: list[recordings.Recording]) -> sounds.Samples:
    return next(r for r in recorded if r.text.startswith("Hello")).samples()


async def one_turn(app: VoiceApp, samples: sounds.Samples) -> Talker:
    async with Talker(f"{app.socket_url}/v1/talk") as session:
        await session.speak(
            samples, until=lambda: session.has("answer_ended") or session.has("error")
        )
    return session


def test_a_question_is_answered_aloud(app: VoiceApp, recorded: list[recordings.Recording]) -> None:
    session = asyncio.run(one_turn(app, hello(recorded)))
    assert session.messages("transcript")[0]["text"].lower().startswith("hello world")
    assert "".join(t["text"] for t in session.messages("text"))
    audio = session.audio()
    assert sounds.rms(audio) > 0.01
    timings = session.messages("timings")[0]
    order = (
        "transcript",
        "llm_sent",
        "llm_first_text",
        "first_clause",
        "tts_first_audio",
        "first_byte",
        "first_audible",
        "end",
    )
    times = [timings["ms"][name] for name in order]
    assert times == sorted(times)
    assert timings["ms"]["decided"] <= timings["ms"]["first_byte"]
    assert timings["audio_ms"] == pytest.approx(1e3 * audio.size / 24_000, abs=2)


def busy(app: VoiceApp) -> dict[str, int]:
    """Requests that hold a slot of a model stage, as the door sees it."""
    return {name: s["in_flight"] + s["queued"] for name, s in app.ps()["stages"].items()}


def idle(app: VoiceApp) -> bool:
    return not any(busy(app)[name] for name in ("stt", "llm", "tts"))


def test_speech_during_an_answer_stops_it_and_frees_the_slots(
    app: VoiceApp, recorded: list[recordings.Recording]
) -> None:
    question = hello(recorded)

    async def talk() -> tuple[Talker, int]:
        async with Talker(f"{app.socket_url}/v1/talk") as session:
            await session.send(
                {
                    "type": "settings",
                    "instructions": "Tell a very long story about the sea in twenty sentences.",
                }
            )
            await session.speak(question, until=lambda: bool(session.audio().size))
            await session.speak(question, until=lambda: session.has("interrupted"))
            at = next(
                i for i, r in enumerate(session.received) if r.message.get("type") == "interrupted"
            )
            await session.speak(sounds.silence(0.2))
            late = [r for r in session.received[at:] if r.audio]
            assert not late or session.has("answer_started", at)
        return session, at

    session, _ = asyncio.run(talk())
    stopped = session.messages("interrupted")[0]
    assert 0 <= stopped["heard_ms"] <= stopped["sent_ms"]
    until(lambda: idle(app), "slots are free")


@pytest.mark.parametrize(
    "phase", ["ready", "speech_started", "partial", "transcript", "text", "audio", "audio_end"]
)
def test_leaving_at_any_phase_frees_every_slot(
    app: VoiceApp, recorded: list[recordings.Recording], phase: str
) -> None:
    question = hello(recorded)

    async def talk() -> None:
        async with Talker(f"{app.socket_url}/v1/talk") as session:
            reached = (
                (lambda: bool(session.audio().size))
                if phase == "audio"
                else (lambda: session.has(phase))
            )
            await session.speak(question[:0] if phase == "ready" else question, until=reached)

    asyncio.run(talk())
    until(lambda: idle(app), f"slots are free after leaving at {phase}")


def test_the_page_is_served_under_a_strict_policy(app: VoiceApp) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", app.port, timeout=10)
    connection.request("GET", "/voice/index")
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "style=" not in body
    assert app.status("/voice/../service.py") in (400, 404)
    assert Path(recordings.__file__).is_file()
