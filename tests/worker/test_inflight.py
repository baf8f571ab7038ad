"""`@inflight`: who is in a step, who joins and leaves, and who is left out."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_lab import until

from preroll import InputError, Item, Stage, StageFatal, inflight
from preroll.testing import serve


class Counter(Stage):
    """Counts down from a request's number, one a step; -1 fails its item."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.freed: list[int] = []

    @inflight(max_size=3)
    def step(self, active: list[Item]) -> None:
        self.steps.append([item.input for item in active])
        for item in active:
            if item.input < 0:
                item.fail(InputError(f"negative: {item.input}"))
                continue
            item.state = item.input if item.state is None else item.state - 1
            item.emit(f"{item.input}:{item.state};")
            if item.state == 0:
                item.finish()

    @step.left
    def free(self, item: Item) -> None:
        self.freed.append(item.input)

    async def all_freed(self, num: int) -> None:
        async with asyncio.timeout(20):
            while len(self.freed) < num:  # noqa: ASYNC110 -- set by a thread
                await asyncio.sleep(0.001)


async def all_of(chunks: AsyncIterator[str]) -> str:
    return "".join([chunk async for chunk in chunks])


def expected(number: int) -> str:
    return "".join(f"{number}:{i};" for i in range(number, -1, -1))


@given(st.lists(st.integers(-1, 12), min_size=1, max_size=12), st.randoms(use_true_random=True))
def test_nothing_crosses_between_items_whoever_fails_or_leaves(
    numbers: list[int], chance: random.Random
) -> None:
    stage = Counter()
    leavers = {i: chance.randrange(4) for i in range(len(numbers)) if chance.random() < 0.3}

    async def one(i: int) -> str:
        chunks = stage.step(numbers[i])
        seen = ""
        try:
            async for chunk in chunks:
                seen += chunk
                if i in leavers and seen.count(";") > leavers[i]:
                    break
        finally:
            await chunks.aclose()
        return seen

    async def run() -> list[Any]:
        tasks = [one(i) for i in range(len(numbers))]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await stage.all_freed(len(numbers))
        return results

    for i, result in enumerate(asyncio.run(run())):
        if numbers[i] < 0:
            assert str(result) == "negative: -1"
        elif i in leavers:
            assert expected(numbers[i]).startswith(result)
        else:
            assert result == expected(numbers[i])
    assert all(len(step) <= 3 for step in stage.steps)
    assert sorted(stage.freed) == sorted(numbers)


def test_a_request_joins_between_steps_and_does_not_wait_for_the_others_to_end() -> None:
    class Endless(Stage):
        @inflight(max_size=4)
        async def step(self, active: list[Item]) -> None:
            await asyncio.sleep(0)
            for item in active:
                item.emit(item.input)
                if item.input == "short":
                    item.finish()

    async def run() -> str:
        stage = Endless()
        long = stage.step("long")
        assert await long.__anext__() == "long"
        short = await all_of(stage.step("short"))
        assert await long.__anext__() == "long"
        await long.aclose()
        return short

    assert asyncio.run(run()) == "short"


def test_a_slow_listener_pauses_its_own_item_in_bounded_memory() -> None:
    class Fast(Stage):
        emitted: ClassVar = {"slow": 0, "quick": 0}

        @inflight(max_size=2, buffer=8)
        def step(self, active: list[Item]) -> None:
            for item in active:
                self.emitted[item.input] += 1
                item.emit(self.emitted[item.input])

    async def run() -> None:
        stage = Fast()
        slow, quick = stage.step("slow"), stage.step("quick")
        assert await slow.__anext__() == 1
        for i in range(1, 500):
            assert await quick.__anext__() == i
        assert stage.emitted["slow"] <= 9
        for i in range(2, 100):  # once it listens again, nothing is missing
            assert await slow.__anext__() == i
        await slow.aclose()
        await quick.aclose()

    asyncio.run(run())


def test_with_more_open_than_fit_in_a_step_all_have_their_turn() -> None:
    class Turns(Stage):
        steps: ClassVar[list[list[int]]] = []

        @inflight(max_size=2, max_open=5)
        def step(self, active: list[Item]) -> None:
            self.steps.append([item.input for item in active])
            for item in active:
                item.state = (item.state or 0) + 1
                item.emit(item.state)
                if item.state == 20:
                    item.finish()

    async def run() -> None:
        stage = Turns()

        async def one(i: int) -> list[int]:
            return [chunk async for chunk in stage.step(i)]

        assert await asyncio.gather(*map(one, range(5))) == [list(range(1, 21))] * 5
        assert max(map(len, stage.steps)) == 2
        turns = [sum(i in step for step in stage.steps[:25]) for i in range(5)]
        assert max(turns) - min(turns) <= 3, turns

    asyncio.run(run())


def test_a_step_that_raises_fails_its_items_and_the_next_ones_run() -> None:
    class Faulty(Stage):
        @inflight(max_size=4)
        def step(self, active: list[Item]) -> None:
            if any(item.input == "bad" for item in active):
                raise ValueError("bad step")
            for item in active:
                item.emit("ok")
                item.finish()

    async def run() -> None:
        stage = Faulty()
        with pytest.raises(ValueError, match="bad step"):
            await all_of(stage.step("bad"))
        assert await all_of(stage.step("good")) == "ok"

    asyncio.run(run())


def test_over_http_each_stream_is_its_own_and_a_client_that_leaves_frees_its_place() -> None:
    go = threading.Event()

    class Tokens(Stage):
        freed: ClassVar[list[str]] = []

        @inflight(max_size=2)
        def step(self, active: list[Item]) -> None:
            for item in active:
                item.state = (item.state or 0) + 1
                item.emit({"text": f"{item.input['prompt']}{item.state}"})
                if item.state == item.input["n"]:
                    item.finish()
            go.wait(0.001)

        @step.left
        def free(self, item: Item) -> None:
            self.freed.append(item.input["prompt"])

    with serve(Tokens, max_concurrency=4) as served:
        with served.stream({"prompt": "gone", "n": -1}) as chunks:
            assert next(chunks).startswith(b'data: {"text":"gone1"}')
            assert served.events({"prompt": "a", "n": 3}) == [{"text": f"a{i}"} for i in (1, 2, 3)]
        until(lambda: sorted(Tokens.freed) == ["a", "gone"], "both have left")


def test_a_fatal_step_ends_the_replica() -> None:
    class Fatal(Stage):
        @inflight(max_size=2)
        def step(self, active: list[Item]) -> None:
            raise StageFatal("the device is gone")

    with serve(Fatal) as served:
        assert served.post({}).status == 503
        until(lambda: served.fatal is not None, "fatal")


def test_over_http_a_client_that_reads_nothing_is_paused_then_cancelled_and_stalls_nobody() -> None:
    class Tokens(Stage):
        emitted = 0
        freed: ClassVar[list[str]] = []

        @inflight(max_size=2)
        def step(self, active: list[Item]) -> None:
            for item in active:
                if item.input == b"deaf":
                    self.emitted += 1
                    item.emit(b"x" * 1000)
                else:
                    item.state = (item.state or 0) + 1
                    item.emit(b"y")
                    if item.state == 2000:
                        item.finish()

        @step.left
        def free(self, item: Item) -> None:
            self.freed.append(item.input.decode())

    request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\ndeaf"
    paused = 'preroll_worker_step_paused{method="step"}'
    with (
        serve(Tokens, idle_timeout_s=1.0) as served,
        socket.create_connection(("127.0.0.1", served.port)) as deaf,
    ):
        deaf.sendall(request)
        until(lambda: served.metrics()[paused] == 1, "paused")
        with served.stream(b"listens") as chunks:
            assert b"".join(chunks) == b"y" * 2000
        until(lambda: sorted(Tokens.freed) == ["deaf", "listens"], "cancelled")
        # Two socket buffers, the server's own and the item's hold what was made.
        assert served.stage.emitted < 10_000  # type: ignore[attr-defined]
