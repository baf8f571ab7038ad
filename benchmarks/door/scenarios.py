"""What is sent through every front door, and what is counted per unit of work."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import cpu_s, rss_mb
from targets import MODEL, Target

Json = dict[str, Any]
MAX_EVENTS_PER_READ = 1.2


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load; `unit` is what its CPU time is divided by: "request", "chunk" or "MB"."""

    name: str
    unit: str
    request: Json
    connections: int
    requests: int
    body_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a scenario through one target."""

    us_per_unit: float
    p50_us: float
    rss_mb: float
    client_us_per_unit: float
    events_per_read: float

    @property
    def is_coalesced(self) -> bool:
        """Chunks came together: a machine that is too busy to pace them was measured."""
        return self.events_per_read > MAX_EVENTS_PER_READ


def chat(stream: bool, tokens: int, gap_ms: float = 0.0, prompt: str = "Say hello.") -> Json:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "stream": stream,
        "mock": {"ttft_ms": gap_ms, "gap_ms": gap_ms},
    }
    return {
        "path": "/v1/chat/completions",
        "headers": {"content-type": "application/json"},
        "body": json.dumps(body),
    }


def upload(folder: Path, megabytes: int) -> Json:
    """A transcription request of that size: multipart, the model first, then the file."""
    boundary = "preroll-bench-boundary"
    head = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="model"\r\n\r\n{MODEL}\r\n'
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n'
        "content-type: audio/wav\r\n\r\n"
    )
    file = folder / "upload.bin"
    payload = bytes(range(256)) * (megabytes * 1_000_000 // 256)
    file.write_bytes(head.encode() + payload + f"\r\n--{boundary}--\r\n".encode())
    kind = f"multipart/form-data; boundary={boundary}"
    path = "/v1/audio/transcriptions"
    return {"path": path, "headers": {"content-type": kind}, "body_file": str(file)}


def all_scenarios(folder: Path, scale: float) -> list[Scenario]:
    """`scale` multiplies the amount of work of every scenario."""

    def amount(count: int) -> int:
        return max(4, round(count * scale))

    long_prompt = "tok " * 32_000
    return [
        Scenario("request", "request", chat(False, 8), 32, amount(48_000)),
        Scenario("paced", "chunk", chat(True, 100, gap_ms=20.0), 256, 256),
        Scenario("unpaced", "chunk", chat(True, 400), 64, amount(128)),
        Scenario("alone", "request", chat(False, 8), 1, amount(2_000)),
        Scenario("prompt_32k", "request", chat(False, 8, prompt=long_prompt), 8, amount(1_000)),
        Scenario("upload", "MB", upload(folder, 25), 2, amount(12), body_mb=25.0),
    ]


def run(program: str, scenario: Scenario, port: int, pid: int) -> Sample:
    """Runs a scenario against a port; `pid` is the tree whose CPU time is counted.

    Raises RuntimeError when the client fails or any request does: a figure over failed
    requests would be a figure of something else.
    """
    spec: Json = {
        "version": 1,
        "target": f"tcp:127.0.0.1:{port}",
        "requests": [scenario.request],
        "load": {"mode": "closed", "connections": scenario.connections},
        "stop": {"requests": scenario.requests},
        "detail": "none",
    }
    memory: list[float] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(pid, done, memory))
    before = cpu_s(pid)
    watcher.start()
    try:
        command = [program, "run", "-"]
        text = json.dumps(spec) + "\n"
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    finally:
        done.set()
        watcher.join()
    used = cpu_s(pid) - before
    if ran.returncode:
        raise RuntimeError(f"the load client failed: {ran.stderr.strip()}")
    end = json.loads(ran.stdout.splitlines()[-1])
    if end["ok"] != scenario.requests:
        raise RuntimeError(f"{scenario.name}: {end['failures']} {end['statuses']}")
    sizes = {"request": end["ok"], "chunk": end["content_events"]}
    units = sizes.get(scenario.unit, end["ok"] * scenario.body_mb)
    return Sample(
        us_per_unit=used * 1e6 / units,
        p50_us=end["end_to_end_ns"]["p50"] / 1e3,
        rss_mb=max(memory),
        client_us_per_unit=end["cpu_ns"] / 1e3 / units,
        events_per_read=end["content_events"] / max(1, end["content_reads"]),
    )


def _watch(pid: int, done: threading.Event, memory: list[float]) -> None:
    memory.append(rss_mb(pid))
    while not done.wait(0.2):
        memory.append(rss_mb(pid))


def direct(backend: Target) -> Target:
    """The backend itself, measured as if it were a front door: what the path costs without one."""
    return Target("direct", backend.port, backend.pid)
