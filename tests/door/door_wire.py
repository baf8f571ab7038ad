"""HTTP/1.1 by hand over raw sockets: tests must see, and may send, what a library would hide."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

PATIENCE_S = 20.0
"""How long a test waits for what must happen, on a slow and loaded machine."""

Fields = Iterable[tuple[str, str]]


class ConnectionEnded(Exception):  # noqa: N818 - it is an event, and often no error
    """The peer closed, or reset, where more was due; `got` is what came before."""

    def __init__(self, got: bytes) -> None:
        super().__init__(f"connection ended after {got[-200:]!r}")
        self.got = got


def wait_until(is_so: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Polls until `is_so()`; fails with `what` when it never is."""
    end = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.005)


@dataclass
class Message:
    """A request or a response; `start` is its first line."""

    start: str
    fields: list[tuple[str, str]]
    raw_head: bytes
    body: bytes = b""
    is_whole: bool = True
    """The body's end was seen: its length, the last chunk, or none due."""

    trailers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.start.split(" ", 2)[1])

    @property
    def method(self) -> str:
        return self.start.split(" ", 1)[0]

    @property
    def target(self) -> str:
        return self.start.split(" ")[1]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)


class Wire:
    """A buffered socket that reads messages."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE_S)
        self.sock = sock
        self.held = b""

    def send(self, data: bytes | str) -> None:
        self.sock.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def fill(self) -> None:
        try:
            data = self.sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise ConnectionEnded(self.held)
        self.held += data

    def until(self, end: bytes) -> bytes:
        while end not in self.held:
            self.fill()
        got, self.held = self.held.split(end, 1)
        return got + end

    def exactly(self, count: int) -> bytes:
        while len(self.held) < count:
            self.fill()
        got, self.held = self.held[:count], self.held[count:]
        return got

    def rest(self) -> bytes:
        """Everything until the peer closes."""
        with contextlib.suppress(ConnectionEnded):
            while True:
                self.fill()
        got, self.held = self.held, b""
        return got

    def is_closed(self) -> bool:
        """The peer has closed and nothing is left to be read (does not block)."""
        if self.held:
            return False
        self.sock.settimeout(0)
        try:
            return self.sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.sock.settimeout(PATIENCE_S)

    def head(self) -> Message:
        raw = self.until(b"\r\n\r\n")
        start, *lines = raw[:-4].decode("latin-1").split("\r\n")
        fields = [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)]
        return Message(start, fields, raw)

    def chunks(self) -> Iterator[bytes]:
        """The chunks of a chunked body up to the last, which is left with its trailers."""
        while True:
            size = int(self.until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                return
            yield self.exactly(size)
            assert self.exactly(2) == b"\r\n"

    def read_trailers(self) -> list[tuple[str, str]]:
        trailers = []
        while line := self.until(b"\r\n")[:-2].decode("latin-1"):
            key, _, value = line.partition(":")
            trailers.append((key, value.strip()))
        return trailers

    def body(self, message: Message, *, is_bodyless: bool = False) -> Message:
        """Reads the body after `message`'s head; a cut one is kept with `is_whole` false."""
        got = bytearray()
        try:
            if is_bodyless:
                pass
            elif "chunked" in (message.get("transfer-encoding") or "").lower():
                for chunk in self.chunks():
                    got += chunk
                message.trailers = self.read_trailers()
            elif (length := message.get("content-length")) is not None:
                while len(got) < int(length):
                    if not self.held:
                        self.fill()
                    got += self.exactly(min(len(self.held), int(length) - len(got)))
            elif message.start.startswith("HTTP/"):
                got += self.rest()
        except ConnectionEnded:
            message.is_whole = False
        message.body = bytes(got)
        return message

    def response(self, method: str = "GET") -> Message:
        """One whole response, interim ones skipped."""
        while (message := self.head()).status in (100, 102, 103):
            pass
        is_bodyless = method == "HEAD" or message.status in (204, 304) or message.status == 101
        return self.body(message, is_bodyless=is_bodyless)


def request_bytes(
    method: str,
    target: str,
    fields: Fields = (),
    body: bytes | str | None = None,
    host: str | None = "door",
) -> bytes:
    """A request in one piece; a body gets its Content-Length."""
    lines = [f"{method} {target} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{key}: {value}" for key, value in fields]
    data = body.encode() if isinstance(body, str) else (body or b"")
    if body is not None:
        lines.append(f"Content-Length: {len(data)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + data


def dial(address: tuple[str, int] | str) -> Wire:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE_S)
    try:
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return Wire(sock)


def sse_events(body: bytes) -> list[tuple[str | None, str]]:
    """(event type, data) of each whole event in `body`."""
    events = []
    for block in re.split(rb"\r?\n\r?\n", body)[:-1]:
        kind, data = None, []
        for line in block.decode("utf-8", "replace").splitlines():
            if line.startswith("event:"):
                kind = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
        if data:
            events.append((kind, "\n".join(data)))
    return events
