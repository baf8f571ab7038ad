"""An origin whose every move a test decides: a thread per connection, a function per request."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from door_wire import ConnectionEnded, Message, Wire, wait_until

Answer = Callable[[Message, Wire], object]
"""Answers one request on its connection; returning False closes the connection."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def plain(status: str = "200 OK", body: bytes = b"ok", fields: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{fields}\r\n"
    return head.encode("latin-1") + body


def ok(_request: Message, wire: Wire) -> None:
    wire.send(OK)


def chunk(data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return b"%x\r\n%s\r\n" % (len(data), data)


SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def token(text: str) -> bytes:
    event = {"choices": [{"index": 0, "delta": {"content": text}}]}
    return chunk(f"data: {json.dumps(event)}\n\n")


DONE = chunk("data: [DONE]\n\n")
LAST = b"0\r\n\r\n"


class Origin:
    """Listens on a Unix socket or on a loopback port; keeps what it received."""

    def __init__(self, answer: Answer = ok, path: Path | None = None) -> None:
        self.answer = answer
        self.path = path
        self.requests: list[Message] = []
        self.connections: list[Wire] = []
        self.open = 0
        self.gone = 0
        """Requests whose client was seen to leave (`until_gone`)."""
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"unix:{self.path}" if self.path else f"tcp:127.0.0.1:{self.port}"

    def start(self) -> None:
        family = socket.AF_UNIX if self.path else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        if self.path:
            self.path.unlink(missing_ok=True)
            listener.bind(str(self.path))
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            self.port = listener.getsockname()[1]
        listener.listen(512)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """Stops listening and drops every connection, as a killed process does."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        if self.path:
            self.path.unlink(missing_ok=True)
        self.drop_connections()

    def drop_connections(self) -> None:
        with self._lock:
            connections, self.connections = self.connections, []
        for wire in connections:
            wire.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            wire = Wire(sock)
            with self._lock:
                self.connections.append(wire)
                self.open += 1
            threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: Wire) -> None:
        # Idle for as long as the door likes: the tests' patience bounds requests, not pools.
        wire.sock.settimeout(600)
        try:
            while self._serve_one(wire) is not False:
                pass
        except (ConnectionEnded, OSError, ValueError, AssertionError):
            pass
        finally:
            wire.close()
            with self._lock:
                self.open -= 1
                if wire in self.connections:
                    self.connections.remove(wire)

    def _serve_one(self, wire: Wire) -> object:
        request = wire.head()
        if request.get("expect"):
            wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = wire.body(request)
        with self._lock:
            self.requests.append(request)
        return self.answer(request, wire)

    def until_gone(self, wire: Wire) -> bool:
        """Blocks until the peer closes; counts it; False, to close as well."""
        wire.rest()
        with self._lock:
            self.gone += 1
        return False

    def wait_for_requests(self, count: int) -> None:
        wait_until(lambda: len(self.requests) >= count, f"{count} requests at the origin")

    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]
