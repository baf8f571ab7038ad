"""The engine without Preroll: the same command, the same requests, nobody between."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from preroll.config import Stage
from preroll.engines.base import Launch, get_engine

POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class BareStart:
    """Seconds from the spawn: to health, to the end of the warm-up."""

    healthy_s: float
    warm_s: float


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=120)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(self._path)


@contextmanager
def running(launch: Launch) -> Iterator[float]:
    """Starts the engine; gives the monotonic time of the spawn, ends it afterwards."""
    begun = time.monotonic()
    process = subprocess.Popen(
        launch.argv,
        env={**os.environ, **launch.env},
        cwd=launch.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield begun
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def launch_of(stage: Stage, folder: Path, number: int) -> Launch:
    return get_engine(stage.engine).launch(stage, folder, f"unix:{folder}/bare-{number}.sock")


def start(launch: Launch) -> BareStart:
    """One cold start with the warm-up that `preroll serve` sends too."""
    path = launch.address.removeprefix("unix:")
    with running(launch) as begun:
        wait_healthy(path, launch.probe.path or "/")
        healthy = time.monotonic()
        for call in launch.warmup:
            connection = UnixConnection(path)
            connection.request(call.method, call.path, call.body, dict(call.headers))
            connection.getresponse().read()
            connection.close()
        return BareStart(healthy - begun, time.monotonic() - begun)


def first_token(launch: Launch, body: dict[str, object]) -> float:
    """Seconds from the spawn to the first content of a stream, asked for once healthy."""
    path = launch.address.removeprefix("unix:")
    with running(launch) as begun:
        wait_healthy(path, launch.probe.path or "/")
        connection = UnixConnection(path)
        return first_content(connection, body) - begun


def wait_healthy(path: str, probe: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            connection = UnixConnection(path)
            connection.request("GET", probe)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(POLL_S)
    raise TimeoutError(f"{path} is not healthy after 120 s")


def first_content(connection: http.client.HTTPConnection, body: dict[str, object]) -> float:
    """Monotonic time at which the first non-empty content of a streamed chat came."""
    document = json.dumps({**body, "stream": True})
    header = {"content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", document, header)
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"status {response.status}: {response.read()[:300]!r}")
    while line := response.readline():
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:]).get("choices") or [{}]
            if choices[0].get("delta", {}).get("content"):
                now = time.monotonic()
                response.read()
                connection.close()
                return now
    raise RuntimeError("the stream had no content")
