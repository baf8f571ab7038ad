"""Memory beyond what was declared is one event per crossing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from preroll.backends.base import ProcessState, ProcessStatus, Usage
from preroll.backends.devices import Assignment, Devices, Share
from preroll.cli.ps import limit_words
from preroll.serve.overuse import OveruseWatch

MIB = 2**20


class Told(list[tuple[str, str | None, str | None, dict[str, Any]]]):
    def record(
        self, kind: str, stage: str | None, replica: str | None, data: dict[str, Any]
    ) -> None:
        self.append((kind, stage, replica, data))


def status(rss_bytes: int, how: str) -> ProcessStatus:
    usage = Usage(1, rss_bytes, 0)
    limits = {"memory": how}
    return ProcessStatus(
        "c-1-a", ProcessState.RUNNING, 1, "", 2, usage=usage, limits_applied=limits
    )


def watch() -> tuple[OveruseWatch, Told]:
    told = Told()
    devices = Devices({"0": 80 * MIB})
    devices.hold("c-1-a", Assignment(("0",), Share.DECLARED, 10 * MIB))
    services = SimpleNamespace(record=told.record, devices=devices)
    stage = SimpleNamespace(
        stage=SimpleNamespace(memory_bytes=100 * MIB, gpu_memory_bytes=10 * MIB),
        runners={"c-1-a": None},
    )
    return OveruseWatch(cast(Any, services), cast(Any, {"c": stage})), told


def test_each_crossing_of_a_declared_limit_is_told_once() -> None:
    overuse, told = watch()
    for rss in (90, 120, 130, 90, 110):
        overuse.look([status(rss * MIB, "none: no controller")], {})
    assert [(kind, replica) for kind, _, replica, _ in told] == [("overuse", "c-1-a")] * 2
    assert told[0][1] == "c" and told[0][3]["over_bytes"] == 20 * MIB


def test_an_enforced_limit_is_the_kernels_business() -> None:
    overuse, told = watch()
    overuse.look([status(120 * MIB, "cgroup2")], {})
    assert told == []


def test_device_memory_beyond_the_declared_share_is_told() -> None:
    overuse, told = watch()
    for used in (9, 12, 12, 5, 13):
        overuse.look([], {"c-1-a": used * MIB})
    assert [data["of"] for _, _, _, data in told] == ["gpu_memory"] * 2
    assert told[0][3] == {"of": "gpu_memory", "declared_bytes": 10 * MIB, "over_bytes": 2 * MIB}


def test_ps_says_which_limits_are_only_declared() -> None:
    limits = {"memory": "none: no controller", "kill": "cgroup.kill", "cpus": "none"}
    assert limit_words(limits) == ["memory declared (no controller)", "kill cgroup.kill"]
    assert limit_words({"memory": "none: no limit asked for"}) == []
