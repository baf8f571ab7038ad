"""`make bench-door-hold`: a good client's p99 while 5,000 streams idle and 5,000 clients are slow.

An idle stream has had its first token and waits for the next; a slow client sends its request head
a byte at a time. Both are held by this process on non-blocking sockets. The aim is a p99 of at most
twice that of an idle door. The same client straight to the backend, while the same is held at the
door, says how much of it is the machine: sending the slow clients' bytes takes a quarter of a core.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import start_mock
from processes import kill_tree, rss_mb
from scenarios import chat
from targets import MODEL, Target, start_door

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
# Each slow client sends a byte so often, one client after the other. A hundred bytes at once every
# 10 ms were measured before: this process then kept the door from its core for up to a millisecond.
BYTE_EVERY_S = 0.5


def idle_request() -> bytes:
    """A stream whose first token comes at once and whose second never does."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
        "max_tokens": 2,
        "mock": {"gap_ms": 3_600_000},
    }
    payload = json.dumps(body).encode()
    return HEAD + b"content-length: %d\r\n\r\n" % len(payload) + payload


class Held:
    """Many connections to one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._selector = selectors.DefaultSelector()
        self.idle: list[socket.socket] = []
        self.slow: list[socket.socket] = []
        self.answered = 0

    def close(self) -> None:
        self._selector.close()
        for connection in (*self.idle, *self.slow):
            connection.close()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=10)
        connection.setblocking(False)
        return connection

    def add_idle(self, count: int) -> None:
        """Opens streams and waits until each has its first token."""
        request = idle_request()
        for _ in range(count):
            connection = self._connect()
            connection.send(request)
            self._selector.register(connection, selectors.EVENT_READ)
            self.idle.append(connection)
            self._read(0.0)
        deadline = time.monotonic() + 60
        while self.answered < len(self.idle):
            if time.monotonic() > deadline:
                missing = len(self.idle) - self.answered
                raise RuntimeError(f"{missing} of {len(self.idle)} streams have no first token")
            self._read(0.1)

    def _read(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = connection.recv(65536)
            if b"tok0" in data:
                self.answered += 1
                self._selector.unregister(connection)
            elif not data:
                raise RuntimeError("an idle stream was closed")

    def add_slow(self, count: int) -> None:
        for _ in range(count):
            connection = self._connect()
            connection.send(HEAD[:20])
            self.slow.append(connection)

    def drip_beside(self, process: subprocess.Popen[str]) -> None:
        """One byte more from each slow client in turn, evenly spaced, until the process has ended.

        The door may have given some up.
        """
        start, sent = time.perf_counter(), 0
        while process.poll() is None:
            for connection in self.slow:
                early = start + sent * BYTE_EVERY_S / len(self.slow) - time.perf_counter()
                if early > 0:
                    time.sleep(early)
                with contextlib.suppress(OSError):
                    connection.send(b"x")
                sent += 1


def good_client(program: str, port: int, requests: int, held: Held | None) -> float:
    """The p99 of its requests, from when each was due to its end, ms."""
    spec = {
        "version": 1,
        "target": f"tcp:127.0.0.1:{port}",
        "requests": [chat(False, 8)],
        "load": {"mode": "open", "rate": 200.0, "arrivals": "constant"},
        "stop": {"requests": requests},
        "detail": "none",
    }
    process = subprocess.Popen(
        [program, "run", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(spec) + "\n")
    process.stdin.close()
    if held is not None and held.slow:
        held.drip_beside(process)
    process.wait()
    end: dict[str, Any] = json.loads(process.stdout.read().splitlines()[-1])
    process.stdout.close()
    if end["ok"] != requests:
        raise RuntimeError(f"good client: {end['failures']} {end['statuses']}")
    p99_ms: float = end["end_to_end_ns"]["p99"] / 1e6
    return p99_ms


def hold(arguments: argparse.Namespace, door: Target, backend: Target) -> dict[str, float]:
    """Interleaves rounds without and with the burden, which is built up anew each time."""
    p99_ms: dict[str, list[float]] = {}

    def ask(name: str, target: Target, held: Held | None) -> None:
        found = good_client(arguments.load, target.port, arguments.requests, held)
        p99_ms.setdefault(name, []).append(found)
        print(f"{name}: {found:.3f} ms", file=sys.stderr)

    memory = 0.0
    for _ in range(arguments.rounds):
        ask("alone", door, None)
        ask("direct_alone", backend, None)
        held = Held(door.port)
        try:
            held.add_idle(arguments.idle)
            held.add_slow(arguments.slow)
            ask("held", door, held)
            ask("direct_held", backend, held)
            memory = max(memory, rss_mb(door.pid))
        finally:
            held.close()
        time.sleep(1.0)
    medians = {name: statistics.median(values) for name, values in p99_ms.items()}
    return {
        "idle_streams": arguments.idle,
        "slow_clients": arguments.slow,
        **{f"p99_ms_{name}": round(value, 3) for name, value in medians.items()},
        "p99_ratio_held": round(medians["held"] / medians["alone"], 3),
        "rss_mb_held": round(memory, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--door", default=".venv/bin/preroll-door")
    parser.add_argument("--load", default=".venv/bin/preroll-load")
    parser.add_argument("--idle", type=int, default=5000)
    parser.add_argument("--slow", type=int, default=5000)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/bench/door-hold.json"))
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    need = 2 * arguments.idle + arguments.slow + 1000
    if hard < need:
        raise SystemExit(f"ulimit -n is {hard}; the door needs {need}: raise it, or fewer streams")
    with tempfile.TemporaryDirectory(prefix="door-hold-") as name:
        mock, backend = start_mock(arguments.load)
        try:
            door = start_door(arguments.door, backend.port, Path(name), slots=20_000)
            try:
                found = hold(arguments, door, backend)
            finally:
                kill_tree(door.pid)
        finally:
            mock.kill()
            mock.wait()
    print(json.dumps(found, indent=1))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
