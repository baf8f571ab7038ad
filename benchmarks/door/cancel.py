"""How soon a replica learns that a client has left, through the door.

Client and replica are this one process, on one clock: from the client's close to the end of file at
the replica, during the prefill (nothing was answered yet) and in mid-stream.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from processes import kill_tree
from targets import start_door

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
BODY = b'{"model": "mock", "messages": [], "stream": true}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
WAIT_S = 10.0
REPEATS = 50


def cancel_ms(program: str, phase: str) -> list[float]:
    """One figure per cancelled request, ms; `phase` is `prefill` or `stream`."""
    is_streaming = phase == "stream"
    with _door(program) as (port, listener):
        return [_one(port, listener, is_streaming=is_streaming) for _ in range(REPEATS)]


@contextlib.contextmanager
def _door(program: str) -> Iterator[tuple[int, socket.socket]]:
    with (
        tempfile.TemporaryDirectory(prefix="door-cancel-") as folder,
        socket.create_server(("127.0.0.1", 0), backlog=64) as listener,
    ):
        listener.settimeout(WAIT_S)
        # What asks whether the door is up gets a refusal of its own: no replica has answered yet.
        door = start_door(program, listener.getsockname()[1], Path(folder))
        try:
            yield door.port, listener
        finally:
            kill_tree(door.pid)


def _one(port: int, listener: socket.socket, *, is_streaming: bool) -> float:
    """From close to end of file, ms. Each request has connections of its own on both sides."""
    client = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    client.sendall(REQUEST + b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY))
    replica, _ = listener.accept()
    with replica:
        replica.settimeout(WAIT_S)
        _read_until(replica, BODY)
        if is_streaming:
            replica.sendall(HEAD + b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
            _read_until(client, EVENT)
        left = time.monotonic_ns()
        client.close()
        while replica.recv(65536):
            pass
        return (time.monotonic_ns() - left) / 1e6


def _read_until(sock: socket.socket, mark: bytes) -> None:
    held = b""
    while mark not in held:
        data = sock.recv(65536)
        if not data:
            raise RuntimeError(f"the connection ended before {mark!r}")
        held += data
