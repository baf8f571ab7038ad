"""When a launched command counts as ready, seen from outside."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import monotonic_ns
from typing import Protocol
from urllib.parse import urlsplit

from preroll.backends.base import Line
from preroll.errors import InputError, UnavailableError

# The resolution of a start that is found by asking: a question costs well under a millisecond.
POLL_S = 0.002
ANSWER_S = 5.0
MAX_BODY_BYTES = 64 << 20


class Ready(Protocol):
    """Returns the CLOCK_MONOTONIC ns at which the command was ready; never, if it never is."""

    async def __call__(self, lines: AsyncIterator[Line]) -> int: ...


@dataclass(frozen=True, slots=True)
class LineMatches:
    """A line of output matches; the holder's stamp of that line counts."""

    pattern: re.Pattern[str]

    async def __call__(self, lines: AsyncIterator[Line]) -> int:
        async for line in lines:
            if self.pattern.search(line.text):
                return line.t_ns
        return await _never()


@dataclass(frozen=True, slots=True)
class Connects:
    """A TCP port of this machine takes a connection."""

    port: int

    async def __call__(self, lines: AsyncIterator[Line]) -> int:
        while True:
            if await self.is_so_now():
                return monotonic_ns()
            await asyncio.sleep(POLL_S)

    async def is_so_now(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@dataclass(frozen=True, slots=True)
class Answers:
    """`GET path` is answered with a status within `ok`; address as in the door's tables."""

    address: str
    path: str
    ok: range = range(200, 300)

    async def __call__(self, lines: AsyncIterator[Line]) -> int:
        while True:
            if await self.is_so_now():
                return monotonic_ns()
            await asyncio.sleep(POLL_S)

    async def is_so_now(self) -> bool:
        try:
            return await http_status(self.address, "GET", self.path) in self.ok
        except UnavailableError:
            return False


@dataclass(frozen=True, slots=True)
class Ends:
    """The command itself ends with status 0: what it does is the start."""

    async def __call__(self, lines: AsyncIterator[Line]) -> int:
        return await _never()


async def _never() -> int:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable")


def parse_ready(text: str | None, port: int | None) -> Ready:
    """`--ready`: a URL, a port, or a regular expression; None: the port of `{port}`, else the
    command's own end. Raises InputError that says what is allowed."""
    if text is None:
        return Ends() if port is None else Connects(port)
    text = text.replace("{port}", str(port))
    if text.isdecimal():
        if not 0 < int(text) < 65536:
            raise InputError(f"--ready {text}: allowed: a port from 1 to 65535")
        return Connects(int(text))
    if text.startswith(("http://", "https://")):
        return Answers(*split_url(text))
    try:
        return LineMatches(re.compile(text))
    except re.error as error:
        raise InputError(f"--ready {text!r}: not a regular expression ({error})") from None


def split_url(url: str) -> tuple[str, str]:
    """(address, path and query) of a URL; the address is tcp:HOST:PORT, or tls:HOST:PORT for
    https. Raises InputError."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InputError(f"{url!r}: not a URL ({error})") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r}: allowed: http://HOST[:PORT][/PATH] or https://…")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"{'tls' if parts.scheme == 'https' else 'tcp'}:{parts.hostname}:{port}", path


async def http_status(
    address: str,
    method: str,
    path: str,
    body: bytes = b"",
    headers: tuple[tuple[str, str], ...] = (),
    timeout_s: float = ANSWER_S,
) -> int:
    """The status of one request, once its whole answer is here. Raises UnavailableError."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await _connect(address)
            try:
                host = "localhost" if address.startswith("unix:") else address[4:]
                fields = [*headers, ("host", host), ("content-length", str(len(body)))]
                head = "".join(f"{k}: {v}\r\n" for k, v in fields)
                request = f"{method} {path} HTTP/1.1\r\nconnection: close\r\n{head}\r\n"
                writer.write(request.encode() + body)
                status_line = await reader.readline()
                await _drain(reader)
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError) as error:
        raise UnavailableError(f"{method} {path} at {address}: {error or 'timed out'}") from error
    match = re.match(rb"HTTP/1\.[01] (\d{3})", status_line)
    if not match:
        raise UnavailableError(f"{method} {path} at {address}: no HTTP answer")
    return int(match[1])


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    kind, _, rest = address.partition(":")
    if kind == "unix":
        return await asyncio.open_unix_connection(rest)
    host, _, port = rest.rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=True if kind == "tls" else None)


async def _drain(reader: asyncio.StreamReader) -> None:
    left = MAX_BODY_BYTES
    while left > 0 and (block := await reader.read(1 << 16)):
        left -= len(block)
