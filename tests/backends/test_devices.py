"""Devices are promised once; a share that nothing enforces says so; starts come one by one."""

from __future__ import annotations

import asyncio

import pytest

from preroll.backends.devices import (
    Assignment,
    Devices,
    Share,
    parse_devices,
    select,
)
from preroll.core import Resources
from preroll.errors import UnavailableError

GIB = 1 << 30
SMI = """0, GPU-aaa, 81559
1, GPU-bbb, 81559
2, GPU-ccc, [N/A]
"""


def test_whole_devices_are_given_once() -> None:
    devices = Devices({"0": 80 * GIB, "1": 80 * GIB})
    first = devices.assign("a", Resources(gpus=1))
    second = devices.assign("b", Resources(gpus=1))
    assert (first.devices, second.devices) == (("0",), ("1",))
    assert first.env == {"CUDA_VISIBLE_DEVICES": "0"} and first.share is Share.EXCLUSIVE
    with pytest.raises(UnavailableError, match=r"c needs 1 whole devices.*0: 0\.0 GiB, 1 replicas"):
        devices.assign("c", Resources(gpus=1))
    devices.release("a")
    assert devices.assign("c", Resources(gpus=1)).devices == ("0",)


def test_a_share_goes_where_it_fits_tightest_and_is_declared() -> None:
    devices = Devices({"0": 80 * GIB, "1": 24 * GIB})
    small = devices.assign("small", Resources(gpu_memory_bytes=20 * GIB))
    assert small.devices == ("1",) and small.share is Share.DECLARED
    assert small.env["PREROLL_GPU_MEMORY_BYTES"] == str(20 * GIB)
    large = devices.assign("large", Resources(gpu_memory_bytes=20 * GIB))
    assert large.devices == ("0",)
    with pytest.raises(UnavailableError, match=r"61\.0 GiB of a device"):
        devices.assign("more", Resources(gpu_memory_bytes=61 * GIB))
    with pytest.raises(UnavailableError, match="1 whole devices"):
        devices.assign("whole", Resources(gpus=1))


def test_no_device_is_wanted_or_there_is_none() -> None:
    none = Devices({})
    assert none.assign("cpu", Resources(cpus=2)) == Assignment()
    with pytest.raises(UnavailableError, match="no device that may be used"):
        none.assign("a", Resources(gpus=1))


def test_a_device_of_unknown_memory_takes_shares() -> None:
    devices = Devices({"0": None})
    assert devices.assign("a", Resources(gpu_memory_bytes=GIB)).devices == ("0",)
    assert devices.assign("b", Resources(gpu_memory_bytes=GIB)).devices == ("0",)


def test_overuse_is_what_exceeds_the_declared_share() -> None:
    devices = Devices({"0": 80 * GIB})
    devices.assign("a", Resources(gpu_memory_bytes=10 * GIB))
    devices.assign("b", Resources(gpu_memory_bytes=10 * GIB))
    used = {"a": 12 * GIB, "b": 10 * GIB, "unknown": 5 * GIB}
    assert devices.overuse(used) == {"a": 2 * GIB}


def test_starts_on_one_device_come_one_after_the_other() -> None:
    async def body() -> None:
        devices = Devices({"0": None, "1": None})
        both = Assignment(("1", "0"), Share.EXCLUSIVE)
        order: list[str] = []
        let_go = asyncio.Event()

        async def start(name: str, assignment: Assignment) -> None:
            async with devices.starting(assignment):
                order.append(f"{name} starts")
                if name == "a":
                    await let_go.wait()
                order.append(f"{name} ready")

        first = asyncio.create_task(start("a", Assignment(("0",), Share.DECLARED)))
        await asyncio.sleep(0)
        second = asyncio.create_task(start("b", both))
        await start("elsewhere", Assignment(("1",), Share.DECLARED))
        await start("cpu", Assignment())
        let_go.set()
        await asyncio.gather(first, second)
        assert order.index("a ready") < order.index("b starts")
        assert "elsewhere ready" in order[:4]

    asyncio.run(body())


def test_the_drivers_list_is_read_and_what_is_hidden_left_out() -> None:
    devices = parse_devices(SMI)
    assert devices["0"] == ("GPU-aaa", 81559 << 20) and devices["2"] == ("GPU-ccc", None)
    assert list(select(devices, None)) == ["0", "1", "2"]
    assert list(select(devices, "1,0")) == ["1", "0"]
    assert select(devices, "GPU-bbb") == {"GPU-bbb": 81559 << 20}
    assert list(select(devices, "0,9,1")) == ["0"]
    assert select(devices, "") == {} and select(parse_devices(""), None) == {}
