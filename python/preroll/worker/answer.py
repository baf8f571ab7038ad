"""What a stage's code returns, as HTTP: JSON, text, bytes, or a `Response` of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

Header = tuple[bytes, bytes]

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
BYTES = b"application/octet-stream"
EVENTS = b"text/event-stream"
JSON_TYPE: Header = (b"content-type", JSON)

WITHOUT_BODY = (204, 304)
ALLOWED = "dict, list, str, int, float, bool, None, bytes, Response or an iterator of chunks"


class Response:
    """An answer with its own status, type or headers.

    `body` is what could have been returned instead: JSON values, str, bytes, or a sync or async
    iterator of chunks. As the first item of a stream it sets status, type and headers, and its
    body, if any, is the first chunk.
    """

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: Any = b"",
        *,
        status: int = 200,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not 200 <= status <= 599:
            raise ValueError(f"status {status}; allowed: 200 to 599")
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = dict(headers or {})


_json_text = json.JSONEncoder(
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,  # a circle ends in a RecursionError
).encode


class WrongTypeError(TypeError):
    """A stage's code returned or yielded something that is no answer."""


def to_json(value: Any) -> bytes:
    """Compact JSON. Raises WrongTypeError for what JSON cannot say (NaN too)."""
    try:
        return _json_text(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongTypeError(f"not expressible in JSON: {error}") from None


def is_iterator(value: Any) -> bool:
    return hasattr(value, "__anext__") or hasattr(value, "__next__") or hasattr(value, "__aiter__")


class Whole(NamedTuple):
    """An answer that is ready to be sent."""

    status: int
    headers: list[Header]
    body: bytes


def render(result: Any, where: str, content_type: bytes | None) -> Any:
    """A `Whole`, or the iterator (or the Response of one) that is to be streamed.

    `where` names the method in errors; `content_type` is its own for bytes and text.
    """
    if isinstance(result, (dict, list)):  # what nearly all answers are
        body = _json(result, where)
        return Whole(200, [JSON_TYPE, (b"content-length", b"%d" % len(body))], body)
    head = result if isinstance(result, Response) else None
    value = head.body if head is not None else result
    if is_iterator(value):
        return result
    body, kind = encode(value, where)
    if kind is not JSON and content_type is not None:
        kind = content_type
    if head is not None and head.status in WITHOUT_BODY:
        return Whole(head.status, headers_of(kind, None, head.headers), b"")
    if head is None:
        return Whole(200, headers_of(kind, len(body), {}), body)
    if head.content_type:
        kind = head.content_type.encode("latin-1")
    return Whole(head.status, headers_of(kind, len(body), head.headers), body)


def encode(value: Any, where: str) -> tuple[bytes, bytes]:
    """Body and content type of a plain answer; `where` names the method in the error."""
    if isinstance(value, (dict, list, int, float)) or value is None:
        return _json(value, where), JSON
    if isinstance(value, str):
        return value.encode(), TEXT
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), BYTES
    raise WrongTypeError(f"{where} returned {type(value).__qualname__}; allowed: {ALLOWED}")


def _json(value: Any, where: str) -> bytes:
    try:
        return to_json(value)
    except WrongTypeError as error:
        raise WrongTypeError(f"{where}: {error}") from None


def chunk_type(chunk: Any, where: str) -> bytes:
    """The content type of a stream that begins with this chunk."""
    if isinstance(chunk, (dict, list)):
        return EVENTS
    if isinstance(chunk, str):
        return TEXT
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return BYTES
    allowed = "bytes, str, dict, list, or a Response as the first"
    raise WrongTypeError(f"{where} yielded {type(chunk).__qualname__}; allowed: {allowed}")


def encode_chunk(chunk: Any, where: str) -> bytes:
    """One chunk of a stream; a dict or list is one server-sent event."""
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    if isinstance(chunk, str):
        return chunk.encode()
    if isinstance(chunk, (dict, list)):
        return b"data: " + _json(chunk, where) + b"\n\n"
    chunk_type(chunk, where)  # raises
    raise AssertionError


def headers_of(content_type: bytes, length: int | None, extra: Mapping[str, str]) -> list[Header]:
    """Raises ValueError for a header that HTTP cannot carry."""
    for name, value in extra.items():
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            raise ValueError(f"header {name!r}: {value!r} has characters that HTTP forbids")
    own = [(name.lower().encode("latin-1"), v.encode("latin-1")) for name, v in extra.items()]
    headers: list[Header] = [(b"content-type", content_type)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return headers + [pair for pair in own if pair[0] not in (b"content-type", b"content-length")]


def error_body(status: int, kind: str, message: str, param: str | None = None) -> bytes:
    """The one shape of every error, as the door's."""
    return to_json({"error": {"message": message, "type": kind, "code": status, "param": param}})
