"""Sessions: how they are accepted, refused, slowed down and ended, from either side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from worker_lab import until

from preroll import Context, InputError, Session, SessionClosedError, Stage, StageFatal, route
from preroll.testing import Served, serve
from preroll.worker.session import MAX_UNREAD_BYTES

MESSAGE = b"x" * 100_000


class Talking(Stage):
    def load(self) -> None:
        self.go = threading.Event()
        self.unread = 0
        self.is_over = False
        self.error: BaseException | None = None

    async def session(self, socket: Session, ctx: Context) -> None:
        """Does what the first message says."""
        what = await socket.receive()
        if what == "json":
            await socket.send({"query": dict(ctx.query)})
        elif what == "close":
            await socket.close(4000, "enough")
            await socket.close(4001, "a second time does nothing")
        elif what == "bug":
            raise KeyError("a secret")
        elif what == "input":
            raise InputError("the tempo is negative")
        elif what == "fatal":
            raise StageFatal("no device")
        elif what == "twice":
            await asyncio.gather(socket.receive(), socket.receive())

    @route("WEBSOCKET", "/door/{name}")
    async def choose(self, socket: Session, ctx: Context) -> None:
        if ctx.path_values["name"] != "anna":
            await socket.reject(403, "you are not on the list")
            return
        await socket.accept(socket.subprotocols[-1])
        await socket.send("welcome")

    @route("WEBSOCKET", "/busy")
    async def busy(self, socket: Session) -> None:
        await socket.accept()
        while not self.go.is_set():
            self.unread = socket._num_bytes
            await asyncio.sleep(0.001)
        total = 0
        async for message in socket:
            total += len(message)
            if total == 100 * len(MESSAGE):
                await socket.send(str(total))

    @route("WEBSOCKET", "/shout")
    async def shout(self, socket: Session) -> None:
        try:
            while True:
                await socket.send(MESSAGE)
        except BaseException as error:
            self.error = error
            raise


@pytest.fixture
def talking() -> Iterator[Served]:
    with serve(Talking, idle_timeout_s=0.4) as served:
        yield served


def test_a_dict_is_sent_as_json(talking: Served) -> None:
    with talking.connect("/?voice=anna") as socket:
        socket.send("json")
        assert socket.recv(20) == '{"query":{"voice":"anna"}}'


@pytest.mark.parametrize(
    ("what", "code", "reason"),
    [
        ("nothing", 1000, ""),
        ("close", 4000, "enough"),
        ("input", 1008, "the tempo is negative"),
        ("bug", 1011, "the stage raised KeyError"),
        ("fatal", 1011, "no device"),
        ("twice", 1011, "the stage raised RuntimeError"),
    ],
)
def test_a_session_ends_with_the_code_that_says_why(
    talking: Served, what: str, code: int, reason: str
) -> None:
    with talking.connect() as socket:
        socket.send(what)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code
        assert closed.value.rcvd.reason.startswith(reason)
        assert "secret" not in closed.value.rcvd.reason
    if what == "fatal":
        until(lambda: talking.fatal is not None, "the replica ends")


def test_the_code_chooses_whom_it_accepts_and_how(talking: Served) -> None:
    with talking.connect("/door/anna", subprotocols=["v1", "v2"]) as socket:
        assert socket.subprotocol == "v2"
        assert socket.recv(20) == "welcome"
    with pytest.raises(InvalidStatus) as refused, talking.connect("/door/bert"):
        pass
    assert refused.value.response.status_code == 403
    assert b"not on the list" in refused.value.response.body


def test_where_no_session_is_there_is_404() -> None:
    class Silent(Stage):
        async def __call__(self) -> None: ...

        @route("WEBSOCKET", "/there")
        async def there(self, socket: Session) -> None: ...

    with serve(Silent) as silent:
        with pytest.raises(InvalidStatus) as refused, silent.connect("/"):
            pass
        assert refused.value.response.status_code == 404


def test_a_client_that_sends_faster_than_the_code_reads_is_slowed_down(talking: Served) -> None:
    stage: Any = talking.stage
    with talking.connect("/busy", max_size=None) as socket:

        def send() -> None:
            for _ in range(100):
                socket.send(MESSAGE)

        sender = threading.Thread(target=send)
        sender.start()
        until(lambda: stage.unread >= MAX_UNREAD_BYTES, "read ahead")
        assert stage.unread < MAX_UNREAD_BYTES + len(MESSAGE)
        stage.go.set()
        assert socket.recv(20) == str(100 * len(MESSAGE))
        sender.join()


def test_a_client_that_takes_nothing_is_left(talking: Served) -> None:
    stage: Any = talking.stage
    with talking.connect("/shout", max_queue=1) as socket:
        until(lambda: stage.error is not None, "cancelled")
        assert isinstance(stage.error, asyncio.CancelledError | SessionClosedError)
        until(lambda: talking.metrics()["preroll_worker_sessions"] == 0, "over")
        socket.socket.close()
