"""What a stage's code may know of the request that it works for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any
from urllib.parse import parse_qsl

# The request that the running code works for; calls to other stages carry on its facts.
_current: ContextVar[Context | None] = ContextVar("preroll_context", default=None)

# The client libraries' own time-outs, in seconds: how long they wait for the first byte.
TIMEOUTS = (b"x-stainless-timeout", b"x-request-timeout")


class Context:
    """One request or session.

    `cancelled` turns true within 50 ms of the client's leaving; it may be read from any thread.
    Async code is cancelled as well, at its next await.
    """

    __slots__ = (
        "_headers",
        "_query",
        "_raw",
        "began_s",
        "cancelled",
        "is_answered",
        "path_values",
        "scope",
    )

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.scope = scope
        self.began_s = time.monotonic()
        self.cancelled = False
        self.is_answered = False
        """Whether the first byte of the answer is on its way."""
        self.path_values: dict[str, str] = {}
        """What stood for the `{names}` of the route's path."""
        self._raw: list[tuple[bytes, bytes]] = scope["headers"]
        self._headers: dict[str, str] | None = None
        self._query: dict[str, str] | None = None

    @property
    def method(self) -> str:
        return str(self.scope.get("method", "GET"))

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case; of a repeated one, all values joined by a comma."""
        if self._headers is None:
            found: dict[str, str] = {}
            for raw_name, raw_value in self._raw:
                name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
                found[name] = f"{found[name]}, {value}" if name in found else value
            self._headers = found
        return self._headers

    @property
    def query(self) -> Mapping[str, str]:
        """The query's parameters; of a repeated one, the last."""
        if self._query is None:
            text = self.scope["query_string"].decode("latin-1")
            self._query = dict(parse_qsl(text, keep_blank_values=True))
        return self._query

    def header(self, name: bytes) -> str | None:
        """One header by its name in lower-case bytes, without parsing the others."""
        for key, value in self._raw:
            if key == name:
                return value.decode("latin-1")
        return None

    @property
    def request_id(self) -> str:
        return self.header(b"x-request-id") or ""

    @property
    def session(self) -> str | None:
        return self.header(b"x-preroll-session")

    @property
    def traceparent(self) -> str | None:
        return self.header(b"traceparent")

    @property
    def priority(self) -> int:
        text = self.header(b"x-preroll-priority") or "0"
        return int(text) if text.removeprefix("-").isdecimal() else 0

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the request's deadline (negative once it has passed); None: it has none."""
        text = self.header(b"x-preroll-deadline-ms")
        if text is None or not text.isdecimal():
            return None
        return self.began_s + int(text) / 1e3 - time.monotonic()

    @property
    def first_byte_s(self) -> float | None:
        """Seconds that the client still waits for the first byte of its answer (negative once
        they have passed); None: it did not say, or the first byte is on its way."""
        if self.is_answered:
            return None
        said = [_seconds(text) for name in TIMEOUTS if (text := self.header(name)) is not None]
        limits = [limit_s for limit_s in said if limit_s is not None]
        return self.began_s + min(limits) - time.monotonic() if limits else None

    def raise_if_cancelled(self) -> None:
        """For long synchronous code: raises `CancelledRequestError` once the client has left."""
        if self.cancelled:
            raise CancelledRequestError


class CancelledRequestError(Exception):
    """The client has left; nobody waits for the answer."""


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value >= 0 and math.isfinite(value) else None


def current() -> Context | None:
    """The request that the calling code works for; None outside of any."""
    return _current.get()


def set_current(context: Context) -> None:
    _current.set(context)


def clear() -> None:
    """What runs from here on works for no single request."""
    _current.set(None)
