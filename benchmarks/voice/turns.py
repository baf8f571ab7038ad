"""Turns of a conversation, measured by the client that talks and listens."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from talker import Received, Talker

from preroll.voice.pcm import Samples
from preroll.voice.trim import FirstAudible

SILENCE = np.zeros(1_600, np.float32)


@dataclass(frozen=True, slots=True)
class Turn:
    """Milliseconds at the client. `audible_ms` and `byte_ms` from the decision that the turn was
    over, `from_speech_ms` from the last sample of speech sent. `stalled_s`: silence that a listener
    who plays what comes, as it comes, has to bear within the answer."""

    text: str
    byte_ms: float
    audible_ms: float
    from_speech_ms: float
    stalled_s: float
    timings: dict[str, Any]


def over(session: Talker) -> bool:
    return session.has("answer_ended") or session.has("error") or session.has("closed")


async def one_turn(url: str, samples: Samples, rate_hz: int, voiced_s: float) -> Turn | None:
    """Asks one question. `voiced_s`: where its speech ends. None: no answer was heard."""
    async with Talker(url) as session:
        ended_s = await session.speak(samples, until=lambda: over(session))
    decided = next((r for r in session.received if r.message.get("type") == "speech_stopped"), None)
    frames = [r for r in session.received if r.audio]
    audible_s = _audible_s(frames, rate_hz)
    if decided is None or audible_s is None:
        return None
    transcript = session.messages("transcript")[0]["text"]
    timings = session.messages("timings")
    speech_s = ended_s - samples.size / 16_000 + voiced_s
    return Turn(
        transcript,
        1e3 * (frames[0].at_s - decided.at_s),
        1e3 * (audible_s - decided.at_s),
        1e3 * (audible_s - speech_s),
        _stalled_s(frames, rate_hz),
        timings[0] if timings else {},
    )


def _audible_s(frames: list[Received], rate_hz: int) -> float | None:
    """When the first audible sample could be played: it came in a message whose samples before it
    have to be played first."""
    found = FirstAudible(rate_hz)
    samples_before = 0
    for frame in frames:
        samples = np.frombuffer(frame.audio, "<i2").astype(np.float32) / 32768
        if found.push(samples) and found.position is not None:
            return frame.at_s + max(0, found.position - samples_before) / rate_hz
        samples_before += samples.size
    return None


def _stalled_s(frames: list[Received], rate_hz: int) -> float:
    plays_until_s = frames[0].at_s if frames else 0.0
    stalled_s = 0.0
    for frame in frames:
        stalled_s += max(0.0, frame.at_s - plays_until_s)
        plays_until_s = max(plays_until_s, frame.at_s) + len(frame.audio) / 2 / rate_hz
    return stalled_s


async def at_once(
    url: str, questions: list[tuple[Samples, float]], rate_hz: int, count: int
) -> list[Turn | None]:
    """`count` sessions that each ask a question, begun a third of a second apart."""

    async def later(number: int) -> Turn | None:
        await asyncio.sleep(number / 3)
        samples, voiced_s = questions[number % len(questions)]
        return await asyncio.wait_for(one_turn(url, samples, rate_hz, voiced_s), 60)

    turns = await asyncio.gather(*(later(i) for i in range(count)), return_exceptions=True)
    return [t if isinstance(t, Turn) else None for t in turns]


def keeps_up(turns: list[Turn | None]) -> bool:
    """Every session was answered without a stall, and the median within a second and a half."""
    if any(turn is None for turn in turns):
        return False
    good = [turn for turn in turns if turn is not None]
    return (
        all(turn.stalled_s < 0.25 for turn in good)
        and statistics.median(turn.audible_ms for turn in good) <= 1_500
    )
