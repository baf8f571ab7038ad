"""Calls of one stage to another, through the door: queued, limited and measured as any request.

A call carries on what the request it is made for has: deadline and time-out to the first byte
(what is left of them), priority, session and trace. Its place in the queue is ahead of new
arrivals, because a slot waits for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from concurrent import futures
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, TypeVar

from preroll.errors import InputError, PrerollError, UnavailableError
from preroll.worker import context
from preroll.worker.client import Answer, Connection, Pool
from preroll.worker.errors import DeadlineError, RequestError
from preroll.worker.settings import Settings

T = TypeVar("T")
Body = Any
"""JSON (a dict, list, number, None), bytes, or text."""

# Headers of the request that a call is made for, passed on as they are.
CARRIED = (b"x-preroll-session", b"x-preroll-priority", b"traceparent")
# Refusals of the called stage that hold for the caller's own request too.
PASSED_ON = (429, 503, 504)
# The door answers by the deadline; this much later it is taken for gone.
PATIENCE_S = 1.0
# A thread that waits for a call looks this often whether its own client is still there.
LOOK_EVERY_S = 0.05

_pools: dict[str, Pool] = {}
_loop: asyncio.AbstractEventLoop | None = None


class UndeclaredCallError(PrerollError):
    """The app file does not let this stage call that one."""


class CallError(RequestError):
    """The called stage answered with an error; `answer` is what it said.

    Unhandled, it fails the caller's own request: with the same status where that is true of it
    too (429, 503, 504), else with 502.
    """

    kind = "upstream_error"

    def __init__(self, stage: str, answer: Answer) -> None:
        said = answer.body[:300].decode(errors="replace")
        status = answer.status if answer.status in PASSED_ON else 502
        super().__init__(f"stage {stage!r} answered {answer.status}: {said}", status=status)
        self.answer = answer


class Remote:
    """Another stage. Its methods are async; `blocking` has them for synchronous code."""

    def __init__(self, name: str, pool: Pool) -> None:
        self.name = name
        self._pool = pool

    async def post(
        self, body: Body = None, path: str = "/", *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One whole answer. Raises CallError when it is an error, DeadlineError when no time is
        left, UnavailableError when the door is not there or the answer broke off."""
        connection, head = await self._begin(body, path, headers)
        try:
            parts = [piece async for piece in connection.body(head)]
        except BaseException:
            connection.close()
            raise
        self._pool.give_back(connection)
        answer = Answer(head.status, head.headers, b"".join(parts))
        if answer.status >= 400:
            raise CallError(self.name, answer)
        return answer

    async def stream(
        self,
        body: Body = None,
        path: str = "/",
        *,
        headers: Mapping[str, str] | None = None,
        opened: Callable[[Answer], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The answer's chunks as they come; errors as of `post`, also in the middle. Leaving the
        loop early, or being cancelled, ends the call. `opened` gets the answer's head."""
        connection, head = await self._begin(body, path, headers)
        is_whole = False
        try:
            if opened is not None:
                opened(head)
            if head.status >= 400:
                parts = [piece async for piece in connection.body(head)]
                is_whole = True
                raise CallError(self.name, Answer(head.status, head.headers, b"".join(parts)))
            async for piece in connection.body(head):
                yield piece
            is_whole = True
        finally:
            if is_whole:
                self._pool.give_back(connection)
            else:
                connection.close()

    async def events(
        self,
        body: Body = None,
        path: str = "/",
        *,
        headers: Mapping[str, str] | None = None,
        opened: Callable[[Answer], None] | None = None,
    ) -> AsyncGenerator[str, None]:
        """The data of the answer's server-sent events, without the final `[DONE]`."""
        rest = b""
        # Closed here and now when a reader leaves early, not when garbage is collected.
        async with aclosing(self.stream(body, path, headers=headers, opened=opened)) as pieces:
            async for piece in pieces:
                *events, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
                for event in events:
                    lines = [one[5:].strip() for one in event.split(b"\n") if one[:5] == b"data:"]
                    data = b"\n".join(lines).decode()
                    if lines and data != "[DONE]":
                        yield data

    def connect(
        self, path: str = "/", *, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[Any]:
        """A session: `async with stage.connect() as socket`, then `send`, `recv`, `async for`.

        Needs the package `websockets`. The session takes no slot; ended with the block.
        """
        try:
            from websockets.asyncio.client import unix_connect
        except ImportError:
            raise InputError(
                "the package 'websockets' is not installed; pip install websockets"
            ) from None
        fields = [*self._fields(), *(headers or {}).items()]
        session: AbstractAsyncContextManager[Any] = unix_connect(
            self._pool.socket,
            f"ws://door{path}",
            additional_headers=fields,
            compression=None,
            ping_interval=None,
            max_size=None,
        )
        return session

    @property
    def blocking(self) -> Blocking:
        """The same for synchronous methods, which run in threads."""
        return Blocking(self)

    async def _begin(
        self, body: Body, path: str, headers: Mapping[str, str] | None
    ) -> tuple[Connection, Answer]:
        kind, data = encode(body)
        own = {name.lower(): value for name, value in (headers or {}).items()}
        carried = [(name, value) for name, value in self._fields() if name not in own]
        fields = [*carried, ("content-type", kind), *own.items()]
        left_s = self._limits(fields)
        connection = await self._pool.take()
        try:
            sending = connection.send("POST", path, fields, data)
            limit_s = None if left_s is None else left_s + PATIENCE_S
            return connection, await asyncio.wait_for(sending, limit_s)
        except BaseException as error:
            connection.close()
            if isinstance(error, asyncio.TimeoutError):
                raise DeadlineError(f"stage {self.name!r} did not answer in time") from None
            raise

    def _limits(self, fields: list[tuple[str, str]]) -> float | None:
        """Adds what is left of the request's times; returns the seconds in which the answer must
        begin, None where nothing bounds them."""
        request = context.current()
        if request is None:
            return None
        whole_s, first_byte_s = request.remaining_s, request.first_byte_s
        if whole_s is not None:
            fields.append(("x-preroll-deadline-ms", str(int(whole_s * 1000))))
        if first_byte_s is not None:
            fields.append(("x-request-timeout", f"{first_byte_s:.3f}"))
        left_s = min((s for s in (whole_s, first_byte_s) if s is not None), default=None)
        if left_s is not None and left_s <= 0:
            raise DeadlineError(f"no time is left to call stage {self.name!r}")
        return left_s

    def _fields(self) -> list[tuple[str, str]]:
        fields = [("x-preroll-stage", self.name)]
        request = context.current()
        if request is None:
            return fields
        fields.append(("x-preroll-parent", request.request_id))
        for name in CARRIED:
            value = request.header(name)
            if value is not None:
                fields.append((name.decode(), value))
        return fields


class Blocking:
    """Another stage, for synchronous code: never on the event loop's own thread."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def post(
        self, body: Body = None, path: str = "/", *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """As `Remote.post`."""
        answer: Answer = _wait(self._remote.post(body, path, headers=headers))
        return answer

    def stream(
        self, body: Body = None, path: str = "/", *, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """As `Remote.stream`."""
        chunks = self._remote.stream(body, path, headers=headers)
        try:
            while (piece := _wait(anext(chunks, None))) is not None:
                yield piece
        finally:
            _wait(_close(chunks))


async def _close(chunks: Any) -> None:
    await chunks.aclose()


def _wait(work: Any) -> Any:
    """Runs `work` on the worker's loop, in this thread's context, and waits for it."""
    if _loop is None:
        raise UnavailableError("the worker's loop does not run yet")

    async def run() -> Any:
        return await work

    request = context.current()
    future = asyncio.run_coroutine_threadsafe(_in_context(request, run()), _loop)
    while not futures.wait([future], LOOK_EVERY_S).done:
        if request is not None and request.cancelled:
            future.cancel()
            raise context.CancelledRequestError
    return future.result()


async def _in_context(request: context.Context | None, work: Coroutine[Any, Any, T]) -> T:
    if request is not None:
        context.set_current(request)
    return await work


def encode(body: Body) -> tuple[str, bytes]:
    """Content type and bytes of a body."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return "application/octet-stream", bytes(body)
    if isinstance(body, str):
        return "text/plain; charset=utf-8", body.encode()
    return "application/json", json.dumps(body, separators=(",", ":")).encode()


def bind(loop: asyncio.AbstractEventLoop) -> None:
    """Says on which loop the calls of synchronous code run. Once, when the worker starts."""
    global _loop
    if loop is not _loop:
        _loop = loop
        _pools.clear()


async def release() -> None:
    """Closes the connections that are kept for the next call. Once, when the worker ends."""
    for pool in _pools.values():
        pool.close()
    await asyncio.sleep(0)  # a transport closes on the loop's next pass


def remote(settings: Settings, name: str) -> Remote:
    """The stage `name`, if the app file lets this one call it. Raises UndeclaredCallError."""
    if name not in settings.calls:
        allowed = ", ".join(settings.calls) or "none"
        raise UndeclaredCallError(
            f"stage {settings.stage!r} may not call {name!r}; allowed: {allowed}; the app file"
            f' says which: calls = ["{name}"]'
        )
    if settings.internal is None:
        raise UnavailableError(
            f"stage {settings.stage!r} cannot call {name!r}: it was started without a door"
        )
    pool = _pools.get(settings.internal)
    if pool is None:
        pool = _pools[settings.internal] = Pool(settings.internal)
    return Remote(name, pool)
