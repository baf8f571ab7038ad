"""HTTP/1.1 from control to replicas and the door: a few blocking calls over TCP or Unix sockets."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from preroll.errors import UnavailableError

MAX_BODY_BYTES = 64 << 20
"""An answer larger than this is an error: control reads small documents only."""


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers with lower-case names, and the whole body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._address = address
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = connect(self._address, self._timeout_s)


def connect(address: str, timeout_s: float) -> socket.socket:
    """A connected socket to `unix:/path` or `tcp:HOST:PORT`. Raises OSError."""
    kind, _, rest = address.partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(rest)
        except BaseException:
            sock.close()
            raise
        return sock
    host, _, port = rest.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout_s)


def request(
    address: str,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Iterable[tuple[str, str]] = (),
    timeout_s: float = 5.0,
) -> Response:
    """One request on a connection of its own.

    `timeout_s` bounds each wait for the peer. Raises UnavailableError when nothing (whole) came.
    """
    connection = _Connection(address, timeout_s)
    try:
        fields = {"Connection": "close", **dict(headers)}
        connection.request(method, path, body or None, fields)
        response = connection.getresponse()
        data = response.read(MAX_BODY_BYTES)
        names = {k.lower(): v for k, v in response.getheaders()}
        return Response(response.status, names, data)
    except (OSError, http.client.HTTPException, ValueError) as error:
        text = str(error) or type(error).__name__
        raise UnavailableError(f"{method} {path} at {address}: {text}") from error
    finally:
        connection.close()


class Lines:
    """The lines of an endless answer, read in one thread and closed from another."""

    def __init__(self, address: str, path: str, timeout_s: float = 5.0) -> None:
        self._connection = _Connection(address, timeout_s)
        self._socket: socket.socket | None = None
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        """Yields until the peer ends or `close`. Raises UnavailableError when it cannot begin."""
        connection = self._connection
        try:
            connection.request("GET", self._path)
            self._socket = connection.sock
            response = connection.getresponse()
            if response.status != 200:
                raise UnavailableError(f"GET {self._path}: status {response.status}")
            if self._socket is not None:
                self._socket.settimeout(None)
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            raise UnavailableError(f"GET {self._path}: {error}") from error
        finally:
            connection.close()

    def close(self) -> None:
        sock = self._socket
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return
