"""A request's body as the parameter that a stage's method declares."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from preroll.errors import InputError
from preroll.worker.context import Context
from preroll.worker.errors import RequestError
from preroll.worker.form import Form, parse_multipart, parse_urlencoded

# How far a streamed body is read ahead of the code that takes it.
AHEAD_BYTES = 1 << 20
JSON = "application/json"
_parse = json.JSONDecoder().decode
ITERATORS = ("AsyncIterator", "AsyncIterable", "AsyncGenerator")


def wants_iterator(annotation: Any) -> bool:
    if isinstance(annotation, str):  # not resolvable at run time
        return annotation.partition("[")[0].rpartition(".")[2] in ITERATORS
    origin = get_origin(annotation) or annotation
    return getattr(origin, "__name__", "") in ITERATORS


def item_type(annotation: Any) -> Any:
    """What one request's body is for a batched method, whose parameter is a list of them."""
    arguments = get_args(annotation)
    return arguments[0] if arguments else Any


Decoder = Callable[[bytes, Context], Any]
"""Makes a method's parameter of a body. Raises InputError or RequestError (415, 422) for one that
is not what it should be."""


def decoder(annotation: Any) -> Decoder:
    """Looks at the annotation once, not at every request."""
    if annotation is bytes:
        return lambda body, context: body
    if annotation is str:
        return lambda body, context: _text(body)
    if annotation is Form:
        return lambda body, context: _form(_kind(context), body, context)
    if annotation is Any:
        return _by_type
    validate = getattr(annotation, "model_validate", None)
    origin = get_origin(annotation) or annotation

    def decode(body: bytes, context: Context) -> Any:
        if not body and context.method == "GET":
            return dict(context.query)
        kind = _kind(context)
        if kind and not _is_json(kind):
            raise RequestError(
                f"content-type {kind!r}; allowed: application/json",
                status=415,
                kind="unsupported_media_type",
            )
        value = _json(body)
        return _validated(validate, value) if validate is not None else _checked(origin, value)

    return decode


def _kind(context: Context) -> str:
    """The body's media type without its parameters; empty: none is said."""
    text = context.header(b"content-type")
    if text is None or text == JSON:
        return text or ""
    return text.partition(";")[0].strip().lower()


def _by_type(body: bytes, context: Context) -> Any:
    if not body and context.method == "GET":
        return dict(context.query)
    kind = _kind(context)
    if _is_json(kind):
        return _json(body)
    if kind in ("multipart/form-data", "application/x-www-form-urlencoded"):
        return _form(kind, body, context)
    return body


def _is_json(kind: str) -> bool:
    return kind == JSON or kind.endswith("+json")


def _json(body: bytes) -> Any:
    try:
        return _parse(body.decode())
    except (ValueError, RecursionError):
        pass  # a byte order mark, UTF-16, or no JSON
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {error}") from None


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"the body is no UTF-8: {error}") from None


def _form(kind: str, body: bytes, context: Context) -> Form:
    if kind == "multipart/form-data":
        return parse_multipart(body, context.header(b"content-type") or "")
    if kind == "application/x-www-form-urlencoded":
        return parse_urlencoded(body)
    allowed = "multipart/form-data, application/x-www-form-urlencoded"
    raise RequestError(
        f"content-type {kind!r}; allowed: {allowed}", status=415, kind="unsupported_media_type"
    )


def _validated(validate: Callable[[Any], Any], value: Any) -> Any:
    try:
        return validate(value)
    except ValueError as error:
        raise RequestError(str(error), status=422, kind="invalid_request") from None


def _checked(origin: Any, value: Any) -> Any:
    """A JSON value that is of the right type."""
    if (origin is dict or origin is list) and not isinstance(value, origin):
        raise RequestError(
            f"the body is a JSON {type(value).__name__}; allowed: {origin.__name__}",
            status=422,
            kind="invalid_request",
        )
    return value


class ClientLeftError(Exception):
    """The client closed the connection."""


class BodyReader:
    """The body of one request. `receive` is ASGI's.

    Raises RequestError (413) beyond `max_bytes`, and ClientLeftError when the client goes before
    its body has come.
    """

    def __init__(self, receive: Any, max_bytes: int) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self.is_complete = False

    async def whole(self) -> bytes:
        body = self._take(await self._receive())
        if self.is_complete:
            return body
        parts = [body]
        while not self.is_complete:
            parts.append(await self.part())
        return b"".join(parts)

    async def gone(self) -> None:
        """Waits until the client leaves, or the response is complete."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def part(self) -> bytes:
        return self._take(await self._receive())

    def _take(self, message: Mapping[str, Any]) -> bytes:
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        body: bytes = message.get("body", b"")
        self.is_complete = not message.get("more_body", False)
        self._num_bytes += len(body)
        if self._num_bytes > self._max_bytes:
            raise RequestError(
                f"the body is larger than {self._max_bytes} bytes",
                status=413,
                kind="too_large",
            )
        return body


class BodyStream:
    """A body as it comes, read a bounded way ahead of the code that iterates over it, so that a
    client that leaves is noticed whatever the code does: `on_left` is called then."""

    def __init__(self, reader: BodyReader, on_left: Callable[[], None]) -> None:
        self._reader = reader
        self._on_left = on_left
        self._parts: deque[bytes] = deque()
        self._num_bytes = 0
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            while not self._reader.is_complete:
                part = await self._reader.part()
                if part:
                    self._parts.append(part)
                    self._num_bytes += len(part)
                self._changed.set()
                while self._num_bytes >= AHEAD_BYTES:
                    self._changed.clear()
                    await self._changed.wait()
            await self._reader.gone()
            self._on_left()
        except ClientLeftError:
            self._on_left()
        except RequestError as error:
            self._error = error
        self._changed.set()

    def __aiter__(self) -> BodyStream:
        return self

    async def __anext__(self) -> bytes:
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._reader.is_complete or self._task.done():
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        part = self._parts.popleft()
        self._num_bytes -= len(part)
        self._changed.set()
        return part

    def close(self) -> None:
        self._task.cancel()
