"""Asks recorded questions aloud, at the pace of real time, and tells where the time went.

make demo-voice           asks, prints, and leaves the page running until Ctrl-C
demo.py --no-page         asks, prints and ends
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recordings
from talker import Talker
from voice_app import VoiceApp

from preroll.voice.pcm import to_s16le

BUILD = Path(__file__).parents[2] / "build/demo-voice"
PORT = 8322
QUESTIONS = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and what became of it; `partial_ms` after its first sample."""

    text: str
    heard: str
    answer: str
    partial_ms: float | None
    final_ms: float
    timings: dict[str, Any]
    session: Talker


async def ask(app: VoiceApp, recording: recordings.Recording) -> Asked:
    async with Talker(f"{app.socket_url}/v1/talk") as session:
        began_s = time.monotonic()
        await session.speak(
            recording.samples(),
            until=lambda: session.has("answer_ended") or session.has("error"),
        )
    if session.has("error"):
        raise RuntimeError(session.messages("error")[0]["message"])
    partial = next((r for r in session.received if r.message.get("type") == "partial"), None)
    timings = session.messages("timings")[0]
    return Asked(
        text=recording.text,
        heard=session.messages("transcript")[0]["text"],
        answer="".join(t["text"] for t in session.messages("text")),
        partial_ms=None if partial is None else 1e3 * (partial.at_s - began_s),
        final_ms=timings["ms"]["transcript"],
        timings=timings,
        session=session,
    )


def tell(asked: Asked) -> None:
    ms, queue = asked.timings["ms"], asked.timings["queue_ms"]
    wrong, total = recordings.errors(asked.text, asked.heard)
    audible = ms.get("first_audible")
    rows = [
        ("asked", asked.text),
        ("heard", f"{asked.heard}  ({wrong} of {total} words wrong)"),
        ("answered", asked.answer),
        ("queue wait", ", ".join(f"{role} {wait:.1f} ms" for role, wait in queue.items())),
        ("first partial", _ms(asked.partial_ms, "after the first sample")),
        ("turn decided", _ms(ms["decided"], "after the last voiced sample")),
        ("final transcript", _ms(asked.final_ms, "after the last voiced sample")),
        ("LLM first text", _ms(_between(ms, "llm_sent", "llm_first_text"), "after it was asked")),
        ("first byte", _ms(_between(ms, "decided", "first_byte"), "after the decision")),
        ("first audible", _ms(_between(ms, "decided", "first_audible"), "after the decision")),
        ("", _ms(audible, "after the last voiced sample")),
        ("trimmed", _ms(asked.timings["trimmed_ms"], "of silence in front")),
        ("total", _ms(ms["end"], f"for {asked.timings['audio_ms']} ms of speech")),
    ]
    for name, value in rows:
        print(f"  {name:<17}{value}")
    print()


def _between(ms: dict[str, float], start: str, end: str) -> float | None:
    return ms[end] - ms[start] if start in ms and end in ms else None


def _ms(value: float | None, what: str) -> str:
    return "did not happen" if value is None else f"{value:6.0f} ms {what}"


def save(asked: Asked, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(24_000)
        out.writeframes(to_s16le(asked.session.audio()))


def questions(app: VoiceApp, found: list[recordings.Recording]) -> None:
    wrong = total = 0
    for number, recording in enumerate(found[-QUESTIONS:] + found[1:2], 1):
        asked = asyncio.run(ask(app, recording))
        tell(asked)
        one, of = recordings.errors(recording.text, asked.heard)
        wrong, total = wrong + one, total + of
        save(asked, BUILD / f"answer-{number}.wav")
    print(f"word error rate {100 * wrong / total:.1f} % over {total} words")
    print(f"answers saved in {BUILD}")


def main() -> int:
    found = recordings.find()
    if not found:
        print("no recordings; fetch them: make voice", file=sys.stderr)
        return 2
    app = VoiceApp(BUILD / "state", port=PORT)
    app.stop()  # of an earlier demo
    shutil.rmtree(app.state, ignore_errors=True)
    is_left = False
    try:
        print(f"all four stages ready and warm {app.start():.2f} s after nothing\n")
        questions(app, found)
        is_left = os.environ.get("DEMO_EXIT") != "1"
    finally:
        if not is_left:
            app.stop()
    if is_left:
        print(f"\nTalk yourself: {app.url}/voice/index")
        print(f"To end it: preroll stop --state {app.state}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
