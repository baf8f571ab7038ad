"""`preroll.testing` itself: starts, failures of hooks, stages that call each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from preroll import Context, Session, Stage
from preroll.testing import serve
from preroll.worker.context import TIMEOUTS


class Last(Stage):
    async def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"last": body}

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[dict[str, int]]:
        for i in range(body["n"]):
            yield {"i": i}

    async def session(self, socket: Session) -> None:
        async for message in socket:
            await socket.send(message)


class Middle(Stage):
    def load(self) -> None:
        self.last = self.stage("last")

    async def __call__(self, body: dict[str, Any]) -> Any:
        return {"middle": (await self.last.post(body)).json()}


class First(Stage):
    async def __call__(self, body: dict[str, Any]) -> Any:
        return (await self.stage("middle").post(body)).json()

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[str]:
        async for event in self.stage("last").events(body):
            yield event

    async def session(self, socket: Session) -> None:
        async with self.stage("last").connect() as other:
            async for message in socket:
                await other.send(message)
                await socket.send(await other.recv())


def test_stages_call_each_other_inside_one_test() -> None:
    with serve(First, calls={"middle": Middle, "last": Last}) as first:
        assert first.post({"a": 1}).json() == {"middle": {"last": {"a": 1}}}
        with first.stream({"n": 3, "stream": True}) as chunks:
            assert b"".join(chunks) == b'{"i":0}{"i":1}{"i":2}'
        with first.connect() as socket:
            socket.send("hi")
            assert socket.recv(20) == "hi"


class Told(Stage):
    """Says what it was told of its caller's time-outs."""

    async def __call__(self, ctx: Context) -> Any:
        return [ctx.header(name) for name in TIMEOUTS]


class Caller(Stage):
    async def __call__(self, body: dict[str, Any]) -> Any:
        return (await self.stage("told").post(body)).json()

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[Any]:
        yield (await self.stage("told").post(body)).json()
        yield (await self.stage("told").post(body)).json()

    async def session(self, socket: Session) -> None:
        await socket.send((await self.stage("told").post()).json())


def test_a_call_is_told_how_long_the_client_waits_for_its_first_byte() -> None:
    waits = {"x_stainless_timeout": "600", "x_request_timeout": "30.5"}
    with serve(Caller, calls={"told": Told}) as caller:
        stainless, ours = caller.post({}, **waits).json()
        assert stainless is None and 0 < float(ours) <= 30.5, "the shorter one, less what is spent"
        for nothing in ("", "nan", "-1", "soon"):
            assert caller.post({}, x_request_timeout=nothing).json() == [None, None]
        answer = caller.post({}, x_request_timeout="0")
        assert answer.status == 504 and "no time is left" in answer.text
        before, after = caller.events({"stream": True}, **waits)
        assert before[1] is not None
        assert after == [None, None], "the client has its first byte"
        with caller.connect(additional_headers={"x-request-timeout": "30"}) as socket:
            assert socket.recv(20) == "[null,null]"


def test_what_a_hook_raises_reaches_the_test() -> None:
    class Broken(Stage):
        async def load(self) -> None:
            raise FileNotFoundError("no weights")

        def __call__(self) -> None: ...

    with pytest.raises(FileNotFoundError, match="no weights"), serve(Broken):
        raise AssertionError("started")


def test_a_class_that_answers_nothing_is_refused() -> None:
    class Nothing(Stage):
        def load(self) -> None: ...

    with pytest.raises(TypeError, match="answers nothing"), serve(Nothing):
        raise AssertionError("started")


def test_close_runs_after_the_block() -> None:
    closed = []

    class Closing(Stage):
        def __call__(self) -> str:
            return "open"

        async def close(self) -> None:
            closed.append("closed")

    with serve(Closing) as stage:
        assert stage.post().text == "open"
    assert closed == ["closed"]
