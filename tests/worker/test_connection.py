"""The worker's own HTTP connection: what goes over it, how it is kept, and how it ends."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_lab import until, worker

from preroll import Context, Response, Stage, route
from preroll.testing import Served, serve
from preroll.worker.connection import KEEP_ALIVE_S, Connection
from preroll.worker.cycle import MAX_COPIED_BYTES


class Answering(Stage):
    max_body_bytes = 1 << 20

    def load(self) -> None:
        self.gate = asyncio.Event()
        self.num_cancelled = 0

    async def __call__(self, body: bytes) -> bytes:
        return body

    @route("POST", "/thread")
    def in_thread(self, body: bytes) -> bytes:
        return body

    @route("GET", "/path/{name}")
    async def path(self, ctx: Context) -> dict[str, Any]:
        return {"name": ctx.path_values["name"], "query": dict(ctx.query)}

    @route("POST", "/head-first")
    async def head_first(self, body: bytes) -> AsyncIterator[Any]:
        yield Response(status=201)
        await self.gate.wait()
        yield b"late"

    @route("POST", "/parts")
    async def parts(self, body: AsyncIterator[bytes]) -> int:
        return sum([len(part) async for part in body])

    @route("POST", "/wait")
    async def wait(self, body: bytes) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            self.num_cancelled += 1

    @route("POST", "/closing")
    async def closing(self, body: bytes) -> Response:
        return Response(b"x", headers={"connection": "close", "transfer-encoding": "chunked"})


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(Answering, max_concurrency=8) as stage:
        yield stage


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


def post(body: bytes, path: str = "/x", *headers: str, version: str = "1.1") -> bytes:
    lines = [f"POST {path} HTTP/{version}", "host: x", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "\r\n"]).encode() + body


def read_answer(reader: Any) -> tuple[int, dict[str, str], bytes]:
    status = int(reader.readline().split()[1])
    headers: dict[str, str] = {}
    while (line := reader.readline()) != b"\r\n":
        name, _, value = line.decode().partition(":")
        assert name not in headers, "said twice"
        headers[name] = value.strip()
    if "content-length" in headers:
        return status, headers, reader.read(int(headers["content-length"]))
    body = b""
    while size := int(reader.readline(), 16):
        body += reader.read(size)
        reader.readline()
    reader.readline()
    return status, headers, body


@settings(max_examples=30, deadline=None)
@given(
    bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=8),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_requests_in_any_pieces_are_answered_in_their_order(
    served: Served, bodies: list[bytes], seed: int, data: Any
) -> None:
    paths = data.draw(st.lists(st.sampled_from(["/x", "/thread"]), min_size=8, max_size=8))
    sent = b"".join(post(body, path) for body, path in zip(bodies, paths, strict=False))
    cut = random.Random(seed)
    with connect(served) as client, client.makefile("rb") as reader:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while sent:
            size = cut.randint(1, len(sent))
            client.sendall(sent[:size])
            sent = sent[size:]
        assert [read_answer(reader)[2] for _ in bodies] == bodies


def test_a_path_is_unquoted_and_its_query_kept(served: Served) -> None:
    with connect(served) as client, client.makefile("rb") as reader:
        for target in ("/path/a%20b?q=1%202", "http://x/path/a%20b?q=1%202"):
            client.sendall(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            assert read_answer(reader)[2] == b'{"name":"a b","query":{"q":"1 2"}}'


def test_the_head_of_a_stream_does_not_wait_for_its_first_chunk(served: Served) -> None:
    with connect(served) as client, client.makefile("rb") as reader:
        client.sendall(post(b"", "/head-first"))
        assert reader.readline() == b"HTTP/1.1 201 Created\r\n"
        while reader.readline() != b"\r\n":
            pass
        stage = served.stage
        assert isinstance(stage, Answering)
        stage.gate._loop.call_soon_threadsafe(stage.gate.set)  # type: ignore[attr-defined]
        assert reader.readline() + reader.readline() == b"4\r\nlate\r\n"


def test_a_head_request_has_a_length_and_no_body(served: Served) -> None:
    with connect(served) as client, client.makefile("rb") as reader:
        client.sendall(b"HEAD /x HTTP/1.1\r\nhost: x\r\n\r\n")
        assert reader.readline().startswith(b"HTTP/1.1 405 ")
        while reader.readline() != b"\r\n":
            pass
        client.sendall(post(b"next"))
        assert read_answer(reader)[2] == b"next"


def test_a_client_that_asks_first_is_told_to_go_on(served: Served) -> None:
    with connect(served) as client, client.makefile("rb") as reader:
        head, body = post(b"body", "/x", "expect: 100-continue")[:-4], b"body"
        client.sendall(head)
        assert reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert reader.readline() == b"\r\n"
        client.sendall(body)
        assert read_answer(reader)[2] == b"body"


@pytest.mark.parametrize(
    "request_",
    [
        post(b"x", version="1.0"),
        post(b"x", "/x", "connection: close"),
        post(b"x", "/closing"),
        post(b"{", "/head-first", version="1.0"),
    ],
    ids=["http-1.0", "asked", "the-codes-wish", "stream-1.0"],
)
def test_a_connection_that_is_not_kept_is_closed_after_the_answer(
    served: Served, request_: bytes
) -> None:
    stage = served.stage
    assert isinstance(stage, Answering)
    stage.gate._loop.call_soon_threadsafe(stage.gate.set)  # type: ignore[attr-defined]
    with connect(served) as client, client.makefile("rb") as reader:
        client.sendall(request_)
        answer = reader.read()
    assert answer.count(b"\r\nconnection: close\r\n") == 1
    assert b"transfer-encoding" not in answer
    assert answer.endswith((b"\r\n\r\nx", b"\r\n\r\nlate"))


def test_what_is_no_http_is_refused_and_does_not_tear_the_answer_before_it(served: Served) -> None:
    with connect(served) as client, client.makefile("rb") as reader:
        client.sendall(b"no http at all\r\n\r\n")
        status, headers, _ = read_answer(reader)
        assert (status, headers["connection"], reader.read()) == (400, "close", b"")
    with connect(served) as client, client.makefile("rb") as reader:
        client.sendall(post(b"whole", "/thread") + b"no http at all\r\n\r\n")
        assert read_answer(reader)[2] == b"whole"
        assert reader.read() == b""
    with connect(served) as client, client.makefile("rb") as reader:
        client.sendall(
            post(b"", "/parts", "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
        )
        client.sendall(b"3\r\nabc\r\nno size\r\n")
        assert reader.read() == b"", "a body that breaks off has no answer"


def test_a_body_that_is_refused_does_not_stop_the_next_request(served: Served) -> None:
    with connect(served) as client, client.makefile("rb") as reader:
        client.sendall(post(b"x" * (2 << 20)))
        assert read_answer(reader)[0] == 413
        client.sendall(post(b"y" * (1 << 20), "/parts"))
        assert read_answer(reader)[2] == b"%d" % (1 << 20)


@pytest.mark.parametrize("how", ["close", "half"])
def test_a_client_that_shuts_its_side_has_left(served: Served, how: str) -> None:
    stage = served.stage
    assert isinstance(stage, Answering)
    before = stage.num_cancelled
    with connect(served) as client:
        client.sendall(post(b"", "/wait") + post(b"behind"))
        until(lambda: served.metrics()["preroll_worker_requests_running"] == 1, "it runs")
        if how == "half":
            client.shutdown(socket.SHUT_WR)
        else:
            client.close()
        until(lambda: stage.num_cancelled > before, "cancelled", 5.0)


def test_without_its_parser_uvicorns_own_protocol_serves_and_notices_who_leaves(
    tmp_path: Path,
) -> None:
    code = (
        "import asyncio, sys\n"
        "sys.modules['httptools'] = None\n"
        "class Mine(Stage):\n"
        "    async def __call__(self, body: bytes, ctx: Context):\n"
        "        if body == b'wait':\n"
        "            try:\n"
        "                await asyncio.sleep(60)\n"
        "            finally:\n"
        "                print('left', ctx.cancelled, flush=True)\n"
        "        return body\n"
    )
    with worker(tmp_path, code) as process:
        assert process.request(b"hello") == (200, b"hello")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(process.socket)
            client.sendall(post(b"wait"))
            until(lambda: process.metric("preroll_worker_requests_running") == 1, "it runs")
        process.wait_said("left True")


# Against a transport that is looked at ---------------------------------------------------------


class Transport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class Clock:
    """The loop, with a time and timers that are set by hand."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.create_task = loop.create_task
        self.call_soon = loop.call_soon
        self.now_s = 100.0
        self.timers: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Any) -> Any:
        self.timers.append((self.now_s + delay_s, call))
        return SimpleNamespace(cancel=self.timers.clear)

    def move(self, seconds: float) -> None:
        self.now_s += seconds
        due = [one for one in self.timers if one[0] <= self.now_s]
        self.timers = [one for one in self.timers if one[0] > self.now_s]
        for _, call in due:
            call()


async def opened(app: Any) -> tuple[Connection, Transport, Clock]:
    state = SimpleNamespace(connections=set(), tasks=set(), total_requests=0)
    config = SimpleNamespace(loaded_app=app, ws_protocol_class=None)
    clock = Clock(asyncio.get_running_loop())
    connection = Connection(config, state, {}, _loop=clock)  # type: ignore[arg-type]
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport, clock


async def passes() -> None:
    """As many of the loop as anything here takes."""
    for _ in range(10):
        await asyncio.sleep(0)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def chunks(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(2):
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.parametrize(
    ("app", "writes"),
    [
        (echo, [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"]),
        (
            chunks,
            [
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
                b"3\r\nabc\r\n",
                b"0\r\n\r\n",
            ],
        ),
    ],
)
def test_the_head_leaves_with_the_first_body_by_one_write(app: Any, writes: list[bytes]) -> None:
    async def run() -> None:
        connection, transport, _ = await opened(app)
        connection.data_received(post(b"body"))
        await passes()
        assert transport.writes == writes

    asyncio.run(run())


def test_a_large_body_is_not_copied() -> None:
    body = b"x" * (MAX_COPIED_BYTES + 1)

    async def large(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def run() -> None:
        connection, transport, _ = await opened(large)
        connection.data_received(post(b""))
        await passes()
        head, sent = transport.writes
        assert head.endswith(b"\r\n\r\n") and sent is body

    asyncio.run(run())


def test_a_connection_is_closed_when_nothing_has_come_for_a_while() -> None:
    async def run() -> None:
        connection, transport, clock = await opened(echo)
        clock.move(KEEP_ALIVE_S - 1)
        connection.data_received(post(b"body"))
        await passes()
        clock.move(2)
        assert not transport.is_closed, "only 2 s have passed since its last request"
        clock.move(KEEP_ALIVE_S - 2)
        assert transport.is_closed

    asyncio.run(run())


def test_a_connection_with_a_long_request_stays_open() -> None:
    async def run() -> None:
        go = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await go.wait()
            await echo(scope, receive, send)

        connection, transport, clock = await opened(slow)
        connection.data_received(post(b"body"))
        for _ in range(10):
            clock.move(KEEP_ALIVE_S)
        assert not transport.is_closed
        connection.shutdown()
        assert not transport.is_closed, "the request in flight is answered first"
        go.set()
        await passes()
        assert transport.is_closed
        assert transport.writes[0].endswith(b"connection: close\r\n\r\nbody")

    asyncio.run(run())


@pytest.mark.parametrize("is_started", [False, True])
def test_an_application_that_fails_breaks_the_connection_off(is_started: bool, capfd: Any) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if is_started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        raise ValueError("broken")

    async def run() -> None:
        connection, transport, _ = await opened(broken)
        connection.data_received(post(b"body"))
        await passes()
        assert transport.is_closed
        assert b"0\r\n\r\n" not in b"".join(transport.writes)

    asyncio.run(run())
    assert "ValueError: broken" in capfd.readouterr().err
