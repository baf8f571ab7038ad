"""Payloads of request smuggling; the lenient origin and the naive relay that prove they bite."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from door_origin import OK, Origin
from door_wire import PATIENCE_S, ConnectionEnded, Message, Wire

POISON = "/poison"
SECOND = f"GET {POISON} HTTP/1.1\r\nHost: d\r\nX: "
"""What an attacker hides in a body: a request whose last field swallows the next one's start."""


def coding_lines() -> Iterator[str]:
    """Ways to write Transfer-Encoding: chunked that some readers see and others do not."""
    names = ["Transfer-Encoding", "transfer-encoding", "TRANSFER-ENCODING", "Transfer_Encoding"]
    yield from (f"{name}: chunked" for name in names)
    values = [
        "\tchunked", "\x0bchunked", "\x0cchunked", "\x00chunked", "xchunked", "chunked\x00",
        "chunkedx", '"chunked"', "'chunked'", "chunked,", ",chunked", "identity, chunked",
        "chunked, identity", "chunked, chunked", "gzip, chunked", "identity", "CHUNKED", "chunKed",
        "chunked;x=1", "chunked ", " chunked", "cow", "\u00a0chunked", "chunk\xadd", "deflate",
    ]  # fmt: skip
    yield from (f"Transfer-Encoding:{value}" for value in values)
    separators = [" :", "\t:", "\x00:", "\x0b:", "\r\n :", "\n:", "\r:", "\xa0:", "::", " ", "="]
    yield from (f"Transfer-Encoding{separator} chunked" for separator in separators)
    prefixes = [" ", "\t", "X: y\r\n ", "X: y\r\n\t", "X: y\n", "X: y\r", "\x00", "\xef\xbb\xbf"]
    yield from (f"{prefix}Transfer-Encoding: chunked" for prefix in prefixes)
    yield "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow"
    yield "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked"
    yield "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"
    yield "Transfer-Encoding:\r\n chunked"
    yield "Transfer-Encoding:\n chunked"
    yield "Foo: bar\r\n\rTransfer-Encoding: chunked"


def length_lines(length: int) -> Iterator[str]:
    """Ways to write a length that some readers read otherwise."""
    right = str(length)
    values = [
        f"+{right}", f"-{right}", f"0{right}", f"0x{length:x}", f"{right}.0", f"{right}e0",
        f"{right},", f"{right}, {right}", f"{right},{right}", f"0, {right}", f"{right} 0",
        f"{right}\x00", f"\x0b{right}", f" {right} ", f"{right}abc", "", " ", f"{right};x",
        "18446744073709551616", str(2**64 + length), f"{right}_0", f'"{right}"', "\u0661",
    ]  # fmt: skip
    yield from (f"Content-Length: {value}" for value in values)
    separators = [" :", "\t:", "\x00:", "\r\n :", "\n:", "\xa0:", "_:", "::"]
    yield from (f"Content-Length{separator} {right}" for separator in separators)
    yield f"Content-Length: {right}\r\nContent-Length: 0"
    yield f"Content-Length: 0\r\nContent-Length: {right}"
    yield f"Content-Length: {right}\r\nContent-Length: {right}"
    yield f"Content-Length: {right}\nContent-Length: 0"
    yield f"X: y\nContent-Length: {right}"
    yield f" Content-Length: {right}"


def both() -> Iterator[bytes]:
    """Content-Length with Transfer-Encoding: never to be passed on."""
    bodies = (f"0\r\n\r\n{SECOND}", f"{len(SECOND):x}\r\n{SECOND}\r\n0\r\n\r\n", SECOND)
    for method, body, coding in itertools.product(("POST", "GET", "PUT"), bodies, coding_lines()):
        for length in (len(body), 4, 0):
            yield _request(method, f"Content-Length: {length}\r\n{coding}", body)
            yield _request(method, f"{coding}\r\nContent-Length: {length}", body)


def lengths() -> Iterator[bytes]:
    for method in ("POST", "GET", "DELETE", "HEAD"):
        for lines in length_lines(len(SECOND)):
            yield _request(method, lines, SECOND)
            yield _request(method, lines, SECOND).replace(b"\r\n", b"\n", 2)


def codings() -> Iterator[bytes]:
    body = f"0\r\n\r\n{SECOND}"
    for method in ("POST", "GET", "PATCH", "OPTIONS"):
        for lines in coding_lines():
            yield _request(method, lines, body)
            yield _request(method, lines, body).replace(b"\r\n", b"\n", 2)


def chunk_grammar() -> Iterator[bytes]:
    """Chunk sizes and line ends that readers disagree on."""
    size = f"{len(SECOND):x}"
    sizes = [
        f"0x{size}", f"+{size}", f"-{size}", f" {size}", f"{size} ", f"{size}\t", f"{size};a=b",
        f"{size};\x00", f"{size};a=\n", f"{size}\x00", f"{size}g", "", "g", f"000000000{size}",
        f"1{'0' * 16}{size}", f"{size};{'x' * 100}", f"{size}\r", f"{size},0", f'{size};a="\r\n"',
    ]  # fmt: skip
    for line, end in itertools.product([*sizes, size], ["\r\n", "\n", "\r", "\n\r"]):
        body = f"{line}{end}{SECOND}{end}0{end}{end}"
        yield _request("POST", "Transfer-Encoding: chunked", body)
    for last in ["0\r\n", "00\r\n", "0;x\r\n", "0 \r\n", "-0\r\n", "0x0\r\n", "0\n", "0\r"]:
        for end in ["\r\n", "\n", "X: y\r\n\r\n", "Content-Length: 5\r\n\r\n", " \r\n\r\n"]:
            yield _request("POST", "Transfer-Encoding: chunked", last + end + SECOND)


def named() -> Iterator[bytes]:
    """Connection takes out what it names: never what says where the message ends."""
    tokens = [
        "content-length", "Content-Length, close", "keep-alive, x,content-length,y",
        "content-length, transfer-encoding", "host, content-length",
    ]  # fmt: skip
    chunked = f"{len(SECOND):x}\r\n{SECOND}\r\n0\r\n\r\n"
    for method, token in itertools.product(("POST", "GET"), tokens):
        lines = f"Content-Length: {len(SECOND)}"
        yield _request(method, f"Connection: {token}\r\n{lines}", SECOND)
        yield _request(method, f"{lines}\r\nConnection: x\r\nConnection: {token}", SECOND)
        yield _request(method, f"Connection: {token}\r\nTransfer-Encoding: chunked", chunked)


def starts() -> Iterator[bytes]:
    """Request lines and field lines with more than one reading."""
    for line in [
        "GET /a HTTP/1.1\r\nHost: d\r\n\r\n", "GET  /a HTTP/1.1", "GET /a\tHTTP/1.1", "GET /a",
        "GET /a HTTP/1.1 ", "GET /a HTTP/1.2", "GET /a HTTP/11", "GET /a HTTP/1.1\x00",
        "GET /a http/1.1", " GET /a HTTP/1.1", "GET\x00 /a HTTP/1.1", "GET /a\x00 HTTP/1.1",
        "GET /a b HTTP/1.1", "GET /a HTTP/2.0", "GET /a HTTP/0.9", "GET /a HTTP/1.1\r",
        "\x16\x03\x01",
    ]:  # fmt: skip
        for lines in ["Content-Length: 0", f"Content-Length: {len(SECOND)}"]:
            yield f"{line}\r\nHost: d\r\n{lines}\r\n\r\n{SECOND}".encode("latin-1")
    for field in ["Host: a\r\nHost: b", "X\x00: y", ": y", "X y", "\r: y", "X: \x00", "(x): y"]:
        yield _request("POST", f"{field}\r\nContent-Length: {len(SECOND)}", SECOND)


def _request(method: str, lines: str, body: str) -> bytes:
    text = f"{method} /first HTTP/1.1\r\nHost: d\r\n{lines}\r\n\r\n{body}"
    return text.encode("latin-1", "replace")


def payloads() -> dict[str, list[bytes]]:
    kinds = [both, lengths, codings, chunk_grammar, named, starts]
    return {kind.__name__: list(kind()) for kind in kinds}


READINGS = ("coding", "length", "first")
"""Which of two ends of a body a lenient reader believes: the coding's, the last length's (whatever
the coding says), or the first length's."""


class LenientWire(Wire):
    """Reads as the most forgiving servers have: any newline, any coding, any length."""

    believes = "coding"

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.seen = b""

    def fill(self) -> None:
        before = len(self.held)
        super().fill()
        self.seen += self.held[before:]

    def lenient_request(self) -> Message:
        while b"\n\n" not in self.held.replace(b"\r\n", b"\n"):
            self.fill()
        match = re.search(rb"\r?\n\r?\n", self.held)
        assert match is not None
        raw, self.held = self.held[: match.end()], self.held[match.end() :]
        start, *lines = re.split(r"\r?\n", raw.decode("latin-1"))
        fields = []
        for line in lines:
            key, _, value = line.partition(":")
            fields.append((key.strip().replace("_", "-"), value.strip()))
        message = Message(start, fields, raw)
        coding = " ".join(message.all("transfer-encoding")).lower()
        digits = re.findall(r"\d+", " ".join(message.all("content-length")))
        if "chunked" in coding and (self.believes == "coding" or not digits):
            self._lenient_chunks(message)
        elif digits:
            length = int(digits[0 if self.believes == "first" else -1])
            message.body = self.exactly(min(length, 1 << 20))
        return message

    def raw_request(self) -> bytes:
        """The bytes of one request, as this reader delimits it."""
        begin = len(self.seen) - len(self.held)
        self.lenient_request()
        return self.seen[begin : len(self.seen) - len(self.held)]

    def _lenient_chunks(self, message: Message) -> None:
        while True:
            line = self.until(b"\n")
            digits = re.search(rb"[0-9a-fA-F]+", line.replace(b"0x", b""))
            size = int(digits.group(), 16) if digits else 0
            if size == 0:
                while self.until(b"\n").strip():
                    pass
                return
            message.body += self.exactly(min(size, 1 << 20))
            self.until(b"\n")


class Recorder(Origin):
    """Keeps every request that a lenient reading believes it saw."""

    def __init__(self, believes: str, path: Path) -> None:
        self.believes = believes
        super().__init__(path=path)

    def _serve(self, wire: Wire) -> None:
        lenient = LenientWire(wire.sock)
        lenient.believes = self.believes
        super()._serve(lenient)

    def _serve_one(self, wire: Wire) -> object:
        assert isinstance(wire, LenientWire)
        request = wire.lenient_request()
        with self._lock:
            self.requests.append(request)
        wire.send(OK)
        return True

    def starts(self) -> list[str]:
        return [request.start for request in self.requests]


class NaiveRelay:
    """A proxy as one should not be: forwards by one lenient reading, on one shared connection."""

    def __init__(self, origin: str, believes: str) -> None:
        self.believes = believes
        self.upstream = socket.socket(socket.AF_UNIX)
        self.upstream.connect(origin)
        self.upstream.settimeout(PATIENCE_S)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.upstream.close()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            wire = LenientWire(sock)
            wire.believes = self.believes
            with contextlib.suppress(ConnectionEnded, OSError, ValueError):
                while True:
                    self.upstream.sendall(wire.raw_request())
                    wire.send(self.upstream.recv(len(OK)))
            wire.close()
