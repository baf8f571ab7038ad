"""A small server with planted truth for what the mock does not speak: audio, WebSocket, TLS, and
conversations. One thread per connection, bounded by the test."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "localhost.pem"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
RATE_HZ = 24_000


def pcm(ms: int, value: int) -> bytes:
    return struct.pack("<h", value) * (RATE_HZ * ms // 1000)


class Speaking:
    """POST /v1/audio/speech: 50 ms of noise too soft to hear, then 100 ms of tone, a pause of
    `stall_s` longer than that, and 100 ms more. POST chat: how many messages it was sent, with
    the last answer in them. WebSocket: `ready`, a partial per 10 frames, a final, then done."""

    def __init__(self, tls: bool = False, stall_s: float = 0.0) -> None:
        self.stall_s = stall_s
        self.frames: list[tuple[float, int]] = []
        self._context = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(connection,), daemon=True).start()

    def _connection(self, plain: socket.socket) -> None:
        with suppress(OSError), plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = self._context
            wrapped = context.wrap_socket(plain, server_side=True) if context else plain
            with wrapped, wrapped.makefile("rb") as reader:
                while self._request(wrapped, reader):
                    pass

    def _request(self, connection: socket.socket, reader) -> bool:  # type: ignore[no-untyped-def]
        line = reader.readline().split()
        if not line:
            return False
        headers = {}
        while (field := reader.readline().strip()) != b"":
            name, _, value = field.partition(b":")
            headers[name.lower()] = value.strip()
        body = reader.read(int(headers.get(b"content-length", 0)))
        if b"upgrade" in headers:
            self._websocket(connection, reader, headers[b"sec-websocket-key"])
            return False
        if line[1].startswith(b"/v1/audio/speech"):
            self._speech(connection)
        else:
            self._chat(connection, json.loads(body or b"{}"))
        return True

    def _speech(self, connection: socket.socket) -> None:
        def chunk(data: bytes) -> None:
            connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

        connection.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: audio/pcm\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        chunk(pcm(50, 100))
        time.sleep(0.03)
        tone = pcm(100, 9000)
        chunk(tone[:1001])  # a sample is cut in two
        chunk(tone[1001:])
        time.sleep(0.12 + self.stall_s)
        chunk(pcm(100, 9000))
        chunk(b"")

    def _chat(self, connection: socket.socket, body: dict[str, list[dict[str, str]]]) -> None:
        messages = body.get("messages", [])
        said = [m["content"] for m in messages if m["role"] == "assistant"]
        text = f"{len(messages)} messages, before: {said[-1] if said else 'nothing'}"
        answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]})
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}"
        connection.sendall(f"{head}\r\n\r\n{answer}".encode())

    def _websocket(self, connection: socket.socket, reader, key: bytes) -> None:  # type: ignore[no-untyped-def]
        def say(text: str) -> None:
            connection.sendall(bytes([0x81, len(text)]) + text.encode())

        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: " + accept + b"\r\n\r\n"
        )
        say('{"type": "ready"}')
        count = 0
        for opcode, payload in frames(reader):
            if opcode == 2:
                count += 1
                self.frames.append((time.monotonic(), len(payload)))
                if count % 10 == 0:
                    say('{"type": "partial", "text": "so far"}')
            elif opcode == 1 and json.loads(payload) == {"type": "end"}:
                say('{"type": "final", "text": "all"}')
                time.sleep(0.05)
                say('{"type": "done"}')


def frames(reader) -> Iterator[tuple[int, bytes]]:  # type: ignore[no-untyped-def]
    """Masked frames of a client, until it closes."""
    while len(head := reader.read(2)) == 2:
        length = head[1] & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", reader.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", reader.read(8))
        mask = reader.read(4)
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(reader.read(length)))
        if head[0] & 0x0F == 8:
            return
        yield head[0] & 0x0F, payload


@contextmanager
def speaking(tls: bool = False, stall_s: float = 0.0) -> Iterator[Speaking]:
    server = Speaking(tls, stall_s)
    try:
        yield server
    finally:
        server.close()
