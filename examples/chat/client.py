"""A chat client on the standard library that times what a person would feel."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Answer:
    """One streamed answer. Times are seconds from the send; `ttft_s` is to the first content."""

    status: int = 0
    text: str = ""
    ttft_s: float | None = None
    total_s: float = 0.0
    chunks: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    error: str = ""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket: the engine itself, past the door."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def connect(url: str, timeout_s: float = 120.0) -> http.client.HTTPConnection:
    """A connection to `http://HOST:PORT` or `unix:PATH`."""
    if url.startswith("unix:"):
        return UnixConnection(url.removeprefix("unix:"), timeout_s)
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, object]]:
    """Yields the JSON of each server-sent event until [DONE] or the end."""
    for raw in response:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        yield json.loads(data)


def content(event: dict[str, object]) -> str:
    choices = event.get("choices")
    if not isinstance(choices, list) or not choices:
        return ""
    return choices[0].get("delta", {}).get("content") or ""


def chat(
    url: str,
    model: str,
    prompt: str,
    max_tokens: int = 48,
    stop_after: threading.Event | None = None,
) -> Answer:
    """Streams one chat completion; `stop_after` is set once the first content has come."""
    answer = Answer()
    body = json.dumps(
        {
            "model": model,
            "stream": True,
            "max_tokens": max_tokens,
            "temperature": 0,
            "messages": [{"role": "user", "content": prompt}],
        }
    )
    connection = connect(url)
    sent = time.perf_counter()
    try:
        connection.request(
            "POST", "/v1/chat/completions", body, {"content-type": "application/json"}
        )
        response = connection.getresponse()
        answer.status = response.status
        answer.headers = {name.lower(): value for name, value in response.getheaders()}
        if response.status != 200:
            answer.error = response.read().decode(errors="replace")
            return answer
        for event in events(response):
            if "error" in event:
                answer.error = json.dumps(event["error"])
                break
            text = content(event)
            if text and answer.ttft_s is None:
                answer.ttft_s = time.perf_counter() - sent
                if stop_after is not None:
                    stop_after.set()
            answer.chunks += bool(text)
            answer.text += text
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    finally:
        answer.total_s = time.perf_counter() - sent
        connection.close()
    return answer


def burst(url: str, model: str, count: int, max_tokens: int) -> list[Answer]:
    """`count` different chats sent at the same moment; the answers in order of sending."""
    answers = [Answer() for _ in range(count)]
    gate = threading.Barrier(count)

    def one(index: int) -> None:
        gate.wait()
        prompt = f"Tell me fact number {index} about the sea."
        answers[index] = chat(url, model, prompt, max_tokens)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
