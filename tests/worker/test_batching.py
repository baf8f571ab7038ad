"""`@batch`: who is computed together, in what order, and whose error is whose."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_lab import until

from preroll import InputError, Stage, StageFatal, batch
from preroll.testing import serve


class Doubler(Stage):
    """Doubles numbers; negative ones raise in the batch, odd tens are refused one by one."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    @batch(max_size=4, max_wait="1ms")
    async def double(self, items: list[int]) -> list[Any]:
        self.batches.append(list(items))
        await asyncio.sleep(0)
        if any(item < 0 for item in items):
            raise ValueError(f"negative: {items}")
        return [InputError(f"ten: {item}") if item % 20 == 10 else item * 2 for item in items]


async def gathered(calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


@given(st.lists(st.integers(-3, 200), min_size=1, max_size=40), st.randoms(use_true_random=True))
def test_items_are_never_swapped_whoever_fails_or_leaves(
    numbers: list[int], chance: random.Random
) -> None:
    stage = Doubler()
    leavers = {i for i in range(len(numbers)) if chance.random() < 0.2}

    async def one(i: int) -> Any:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        return await stage.double(numbers[i])

    async def run() -> list[Any]:
        tasks = [asyncio.create_task(one(i)) for i in range(len(numbers))]
        for i in leavers:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            tasks[i].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    for i, (number, result) in enumerate(zip(numbers, asyncio.run(run()), strict=True)):
        if isinstance(result, asyncio.CancelledError):
            assert i in leavers
        elif number < 0:
            assert str(result) == f"negative: [{number}]"
        elif number % 20 == 10:
            assert str(result) == f"ten: {number}"
        else:
            assert result == number * 2
    assert all(len(items) <= 4 for items in stage.batches)


def test_a_full_batch_leaves_at_once_and_the_rest_when_the_oldest_has_waited() -> None:
    class Patient(Stage):
        def __init__(self) -> None:
            self.batches: list[list[int]] = []

        @batch(max_size=3, max_wait=3600.0)
        async def see(self, items: list[int]) -> list[int]:
            self.batches.append(items)
            return items

    async def run() -> list[list[int]]:
        stage = Patient()
        tasks = [asyncio.create_task(stage.see(i)) for i in range(7)]
        await asyncio.gather(*tasks[:6])
        assert not tasks[6].done()
        tasks[6].cancel()
        return stage.batches

    assert asyncio.run(run()) == [[0, 1, 2], [3, 4, 5]]
    stage = Doubler()
    assert asyncio.run(gathered([stage.double(1)])) == [2]
    assert stage.batches == [[1]]


def test_who_leaves_before_the_batch_does_is_not_computed() -> None:
    stage = Doubler()

    async def run() -> list[Any]:
        leaver = asyncio.create_task(stage.double(1))
        stayer = asyncio.create_task(stage.double(2))
        await asyncio.sleep(0)
        leaver.cancel()
        return await asyncio.gather(leaver, stayer, return_exceptions=True)

    assert asyncio.run(run())[1] == 4
    assert stage.batches == [[2]]


def test_who_has_left_takes_no_place_in_a_batch() -> None:
    class Pairs(Stage):
        def __init__(self) -> None:
            self.batches: list[list[int]] = []

        @batch(max_size=2, max_wait=3600.0)
        async def see(self, items: list[int]) -> list[int]:
            self.batches.append(items)
            return items

    async def run() -> list[list[int]]:
        stage = Pairs()
        leaver = asyncio.create_task(stage.see(1))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.gather(leaver, return_exceptions=True)
        first = asyncio.create_task(stage.see(2))
        await asyncio.sleep(0)
        assert await asyncio.gather(stage.see(3), first) == [3, 2]
        return stage.batches

    assert asyncio.run(run()) == [[2, 3]]


def test_a_batch_that_everybody_has_left_is_cancelled_and_the_next_one_runs() -> None:
    class Slow(Stage):
        is_cancelled = False

        @batch(max_size=2, max_wait=0.0)
        async def see(self, items: list[int]) -> list[int]:
            try:
                await asyncio.sleep(0 if 5 in items else 60)
            except asyncio.CancelledError:
                self.is_cancelled = True
                raise
            return items

    async def run() -> int:
        stage = Slow()
        tasks = [asyncio.create_task(stage.see(i)) for i in range(2)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        result: int = await stage.see(5)
        assert stage.is_cancelled
        return result

    assert asyncio.run(run()) == 5


@pytest.mark.parametrize("wrong", [lambda n: [1] * (n + 1), lambda n: None, lambda n: "ab"])
def test_a_wrong_number_of_results_fails_all_and_says_how_many(wrong: Callable[[int], Any]) -> None:
    class Wrong(Stage):
        @batch(max_size=2, max_wait=0.0)
        async def see(self, items: list[int]) -> Any:
            return wrong(len(items))

    async def run() -> list[Any]:
        stage = Wrong()
        return await gathered([stage.see(1), stage.see(2)])

    for error in asyncio.run(run()):
        assert isinstance(error, TypeError) and "Wrong.see returned" in str(error)


def test_requests_are_gathered_over_http_and_each_gets_its_own() -> None:
    entered, go = threading.Event(), threading.Event()

    class Upper(Stage):
        sizes: ClassVar[list[int]] = []

        @batch(max_size=8, max_wait="1ms")
        def __call__(self, texts: list[str]) -> list[str]:
            self.sizes.append(len(texts))
            entered.set()
            go.wait(20)
            return [text.upper() for text in texts]

    with serve(Upper, max_concurrency=16) as served, ThreadPoolExecutor(9) as pool:
        first = pool.submit(served.post, "first")
        entered.wait(20)
        others = {text: pool.submit(served.post, text) for text in "abcdefgh"}
        name = 'preroll_worker_batch_waiting{method="__call__"}'
        until(lambda: served.metrics()[name] == 8, "gathered")
        go.set()
        assert first.result().text == "FIRST"
        assert {text: answer.result().text for text, answer in others.items()} == {
            text: text.upper() for text in "abcdefgh"
        }
        assert Upper.sizes == [1, 8]
        assert served.metrics()['preroll_worker_batch_size_sum{method="__call__"}'] == 9


def test_a_fatal_error_in_a_batch_ends_the_replica() -> None:
    class Fatal(Stage):
        @batch(max_size=2, max_wait=0.0)
        async def __call__(self, items: list[bytes]) -> list[bytes]:
            raise StageFatal("the device is gone")

    with serve(Fatal) as served:
        assert served.post(b"x").status == 503
        until(lambda: served.fatal is not None, "fatal")


def test_a_batch_that_can_never_be_full_is_refused_at_the_start() -> None:
    class Large(Stage):
        @batch(max_size=32)
        def __call__(self, items: list[str]) -> list[str]:
            return items

    with pytest.raises(InputError, match="gathers up to 32 requests, but max_concurrency is 8"):
        serve(Large, max_concurrency=8).__enter__()


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_a_size_below_one_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match="max_size"):
        batch(size)


@pytest.mark.parametrize("wait", ["5", "5 s", -1, None])
def test_a_wait_that_is_no_duration_is_refused(wait: Any) -> None:
    with pytest.raises(ValueError, match="max_wait"):
        batch(4, wait)
