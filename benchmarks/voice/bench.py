"""`make bench-voice`: a spoken round trip on real models (build/bench/voice.json).

Everything is spoken at the pace of real time, and measured by the client that speaks and listens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/voice"))

import recordings  # noqa: E402
import turns  # noqa: E402
from talker import Talker  # noqa: E402
from voice_app import APP, VoiceApp, free_port  # noqa: E402

from preroll.voice.activity import Activity  # noqa: E402
from preroll.voice.silero import Silero  # noqa: E402

OUT = ROOT / "build/bench/voice.json"
PEER = ROOT / ".cache/voice/plain/bin/python"
PEER_RATE_HZ, OUR_RATE_HZ = 22_050, 24_000
STARTS, TRIES = 7, 3
SHORT = "max_answer_tokens = 40\n"
"""Answers of a sentence or two: nothing measured here grows with the rest."""
LIVE = "/v1/audio/transcriptions/stream"


def questions(count: int) -> list[tuple[recordings.Recording, Any, float]]:
    """Recordings, their samples, and where their speech ends."""
    found = recordings.find()
    if not found:
        sys.exit("no recordings; fetch them: make voice")
    made = []
    for recording in found[:count]:
        samples = recording.samples()
        edges = Activity()
        stops = [
            e for e in [*edges.push(Silero().push(samples)), *edges.finish()] if e.kind == "stop"
        ]
        made.append((recording, samples, stops[-1].at_s))
    return made


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def measure_starts(folder: Path, count: int) -> dict[str, Any]:
    # An installed package has its modules compiled; here the first start does it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    times = []
    for number in range(count):
        app = VoiceApp(folder / f"start-{number}")
        times.append(app.start())
        starts = [r["start_s"] for r in app.ps()["replicas"]]
        app.stop()
    return {"ready_s": statistics.median(times), "ready_s_raw": times, "last_start_s": starts}


def measure_turns(url: str, rate_hz: int, asked: list[Any], rounds: int) -> dict[str, Any]:
    found, wrong, total = [], 0, 0
    for _ in range(rounds):
        for recording, samples, voiced_s in asked:
            turn = asyncio.run(turns.one_turn(url, samples, rate_hz, voiced_s))
            if turn is None:
                continue
            found.append(turn)
            one, of = recordings.errors(recording.text, turn.text)
            wrong, total = wrong + one, total + of
            print(f"  {turn.audible_ms:7.0f} ms  {turn.text[:60]}", flush=True)
    medians: dict[str, Callable[[turns.Turn], float]] = {
        "first_audible_ms_p50": lambda t: t.audible_ms,
        "first_audible_from_speech_ms_p50": lambda t: t.from_speech_ms,
        "first_byte_ms_p50": lambda t: t.byte_ms,
    }
    figures: dict[str, Any] = {k: statistics.median(map(f, found)) for k, f in medians.items()}
    figures["first_audible_ms_raw"] = [round(t.audible_ms) for t in found]
    figures["wer_turns"] = wrong / total
    figures["timings"] = [t.timings for t in found if t.timings]
    return figures


async def transcribe_live(app: VoiceApp, samples: Any) -> Talker:
    async with Talker(f"{app.socket_url}{LIVE}") as session:
        await session.speak(
            samples,
            until=lambda: session.has("final") and session.messages("final")[-1]["is_end"],
        )
        await session.send({"type": "end"})
        await session.wait("closed")
    return session


def measure_live(app: VoiceApp, name: str, spoken: list[recordings.Recording]) -> dict[str, Any]:
    lags, first, wrong, total, texts = [], [], 0, 0, []
    for recording in spoken:
        session = asyncio.run(transcribe_live(app, recording.samples()))
        finals = session.messages("final")
        lags += [f["lag_ms"] for f in finals if "lag_ms" in f]
        first += [p["lag_ms"] for p in session.messages("partial") if "lag_ms" in p]
        text = session.messages("done")[0]["text"]
        one_wrong, of = recordings.errors(recording.text, text)
        wrong, total = wrong + one_wrong, total + of
        texts.append([one_wrong, recording.text, text])
        print(f"  {one_wrong:2} of {of} wrong  {text}", flush=True)
    lag = {
        "partial_lag_ms_p50": statistics.median(lags),
        "partial_lag_ms_p90": quantile(lags, 0.9),
        "shown_lag_ms_p50": statistics.median(first),
    }
    heard = {name: wrong / total, f"{name}_words": total, f"{name}_texts": texts}
    return {**lag, **heard} if name == "wer_live" else heard


def measure_wer(app: VoiceApp) -> dict[str, Any]:
    from openai import OpenAI

    wrong = total = 0
    with OpenAI(base_url=f"{app.url}/v1", api_key="none") as client:
        for recording in recordings.find():
            heard = client.audio.transcriptions.create(model="whisper-1", file=recording.path)
            one, of = recordings.errors(recording.text, heard.text)
            wrong, total = wrong + one, total + of
    return {"wer": wrong / total, "wer_words": total}


def measure_interrupts(app: VoiceApp, samples: Any, count: int) -> dict[str, Any]:
    """From the message that speech was noticed to the last audio that came; and the server's own
    time from noticing until both stages were stopped."""
    to_silence, took = [], []

    async def one() -> None:
        async with Talker(f"{app.socket_url}/v1/talk") as session:
            await session.send(
                {"type": "settings", "instructions": "Tell a long story about the sea."}
            )
            await session.speak(samples, until=lambda: session.audio().size > 12_000)
            before = len(session.received)
            await session.speak(samples, until=lambda: session.has("speech_started", before))
            await session.wait("speech_started", before)
        stopped = session.messages("interrupted")
        noticed = next(
            r for r in session.received[before:] if r.message.get("type") == "speech_started"
        )
        if stopped:
            took.append(stopped[0]["took_ms"])
            last = max((r.at_s for r in session.received if r.audio), default=noticed.at_s)
            to_silence.append(max(0.0, 1e3 * (last - noticed.at_s)))

    for _ in range(count):
        asyncio.run(one())
    return {
        "interrupt_ms_p50": statistics.median(took),
        "interrupt_ms_max": max(took),
        "audio_after_ms_max": max(to_silence),
    }


def measure_sessions(url: str, rate_hz: int, asked: list[Any], most: int) -> dict[str, Any]:
    """Up to how many sessions most tries keep up with: one alone is luck, good or bad."""
    held, raw, audible_ms = 0, {}, {}
    pairs = [(samples, voiced_s) for _, samples, voiced_s in asked]
    for count in range(1, most + 1):
        tries = []
        for number in range(TRIES):
            others = pairs[number * count % len(pairs) :] + pairs
            tries.append(asyncio.run(turns.at_once(url, others, rate_hz, count)))
        raw[count] = [
            [None if t is None else [round(t.audible_ms), round(t.stalled_s, 2)] for t in done]
            for done in tries
        ]
        heard_ms = [t.audible_ms for done in tries for t in done if t is not None]
        audible_ms[count] = statistics.median(heard_ms) if heard_ms else None
        num_kept_up = sum(map(turns.keeps_up, tries))
        print(f"  {count} sessions: {num_kept_up} of {TRIES} tries; {raw[count]}", flush=True)
        if 2 * num_kept_up <= TRIES:
            break
        held = count
    return {"sessions": held, "sessions_raw": raw, "sessions_audible_ms_p50": audible_ms}


def measure_peer(app: VoiceApp, asked: list[Any], rounds: int, most: int) -> dict[str, Any]:
    """The plain server, with the app's language model behind it."""
    if not PEER.is_file():
        print("the plain server's environment is missing; it is skipped")
        return {}
    port = free_port()
    # What a variable of ours says to libraries is not said to it.
    env = {k: v for k, v in os.environ.items() if k not in ("ORT_DISABLE_TELEMETRY",)}
    command = [PEER, str(Path(__file__).with_name("plain.py")), str(port), app.url]
    peer = subprocess.Popen(command, env=env)
    try:
        _until_ready(f"http://127.0.0.1:{port}/readyz")
        url = f"ws://127.0.0.1:{port}/v1/talk"
        measure_turns(url, PEER_RATE_HZ, asked[:1], 1)
        print("plain server:")
        figures = measure_turns(url, PEER_RATE_HZ, asked, rounds)
        return {**figures, **measure_sessions(url, PEER_RATE_HZ, asked, most)}
    finally:
        peer.kill()
        peer.wait()


def _until_ready(url: str) -> None:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="starts,turns,live,wer,interrupts,sessions,peer")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--most", type=int, default=6)
    options = parser.parse_args()
    asked = questions(8)
    figures: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() else {}
    OUT.parent.mkdir(parents=True, exist_ok=True)

    def add(found: dict[str, Any]) -> None:
        """Written after every case, so that an interrupted run keeps what it has."""
        figures.update(found)
        OUT.write_text(json.dumps(figures, indent=1) + "\n")

    with tempfile.TemporaryDirectory(prefix="preroll-voice-") as name:
        folder = Path(name)
        if "starts" in options.only:
            add(measure_starts(folder, STARTS))
        with VoiceApp(folder / "state", APP.read_text() + SHORT) as app:
            url = f"{app.socket_url}/v1/talk"
            if "turns" in options.only:
                measure_turns(url, OUR_RATE_HZ, asked[:1], 1)
                print("turns:")
                add(measure_turns(url, OUR_RATE_HZ, asked, options.rounds))
            if "live" in options.only:
                print("live:")
                add(measure_live(app, "wer_live", [recording for recording, _, _ in asked]))
                add(measure_live(app, "wer_live_commands", recordings.commands()))
            if "wer" in options.only:
                add(measure_wer(app))
            if "interrupts" in options.only:
                add(measure_interrupts(app, asked[1][1], 5))
            if "sessions" in options.only:
                found = measure_sessions(url, OUR_RATE_HZ, asked, options.most)
                add({"sessions_realtime": found.pop("sessions"), **found})
            if "peer" in options.only:
                plain = measure_peer(app, asked, options.rounds, options.most)
                if plain:
                    ratio = plain["first_audible_ms_p50"] / figures["first_audible_ms_p50"]
                    add({"plain": plain, "ratio_plain_first_audible": ratio})
    shown = {k: v for k, v in figures.items() if isinstance(v, int | float)}
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
