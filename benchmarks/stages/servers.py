"""What is measured, as servers: an app under `preroll serve`, and LitServe beside it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "door"))

from processes import cpu_s, kill_tree

APP = Path(__file__).parent / "app"
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Server:
    """Listens on `port`; the CPU time of the trees of `pids` is what it costs. `door`: one of
    them, None where there is none."""

    port: int
    pids: tuple[int, ...]
    door: int | None = None

    def cpu_s(self) -> float:
        return sum(cpu_s(pid) for pid in self.pids)

    def door_cpu_s(self) -> float:
        return cpu_s(self.door) if self.door else 0.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def stage(name: str, target: str, **keys: str) -> str:
    """TOML of a stage of the folder `app`, with a route; `keys` are further keys as TOML text."""
    lines = [f"[stage.{name}]", 'engine = "python"', f'class = "{target}"', f'cwd = "{APP}"']
    lines += [f"{key} = {value}" for key, value in keys.items()]
    return "\n".join([*lines, "[[route]]", f'path = "/{name}/*"', f'stage = "{name}"', ""])


@contextmanager
def preroll(folder: Path, stages: str) -> Iterator[tuple[Server, Path]]:
    """An app that is ready, with its state directory. Its door and its replicas are counted, not
    control and holders, through which no request passes."""
    folder.mkdir()
    port, state, file = free_port(), folder / "state", folder / "app.toml"
    file.write_text(f'[serve]\nlisten = "127.0.0.1:{port}"\n{stages}')
    program = str(Path(sys.executable).parent / "preroll")
    with (folder / "log").open("w") as log:
        command = [program, "serve", str(file), "--state", str(state)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until_answering(port, "/healthz", process, folder / "log")
        while "serving on" not in (folder / "log").read_text():
            time.sleep(0.05)
        found = dict(owned(state))
        yield Server(port, tuple(found.values()), found["door-1"]), state
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def owned(state: Path) -> Iterator[tuple[str, int]]:
    """Ids and pids of the processes whose owners are this app's holders."""
    for path in state.glob("holders/*/status.json"):
        with suppress(KeyError, ValueError):
            status = json.loads(path.read_text())
            if status["state"] == "running":
                yield status["id"], int(status["pid"])


@contextmanager
def litserve(python: Path, kind: str, queue: str) -> Iterator[Server]:
    """LitServe with one worker; `queue`: "fast" (its ZMQ queue) or "default"."""
    port = free_port()
    command = [str(python), str(APP / "litserver.py"), str(port), kind, queue]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/tmp"
    )
    try:
        wait_until_answering(port, "/health", process, None)
        yield Server(port, (process.pid,))
    finally:
        kill_tree(process.pid)


def wait_until_answering(
    port: int, path: str, process: subprocess.Popen[bytes], log: Path | None
) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"it ended: {log.read_text() if log else process.args!r}")
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing answered on port {port} within {TIMEOUT_S:g} s")
