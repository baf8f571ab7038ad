"""Memory that nothing enforces: a replica that uses more than was declared is told of, once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from preroll.backends.base import ProcessStatus
from preroll.backends.devices import used_by_pid

if TYPE_CHECKING:
    from preroll.serve.services import Services
    from preroll.serve.stage import StageRunner

EVERY_S = 10.0
IN_FORCE = ("cgroup1", "cgroup2")
"""Limits of memory that the kernel enforces; what goes beyond them is killed, not reported."""


@dataclass(slots=True)
class OveruseWatch:
    """Looks at all replicas now and then; each crossing of a declared limit is one event."""

    services: Services
    stages: Mapping[str, StageRunner]
    _told: set[tuple[str, str]] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if any(s.stage.memory_bytes or s.stage.gpu_memory_bytes for s in self.stages.values()):
                self.look(await self.services.backend.list(), await self._device_bytes())

    def look(self, statuses: Iterable[ProcessStatus], device_bytes: Mapping[str, int]) -> None:
        """`device_bytes`: device memory in use by replica id."""
        over = self.services.devices.overuse(device_bytes)
        limits = {
            replica: stage.stage.memory_bytes
            for stage in self.stages.values()
            for replica in stage.runners
        }
        for status in statuses:
            limit = limits.get(status.id)
            used = status.usage.rss_bytes if status.usage else 0
            is_enforced = status.limits_applied.get("memory", "").startswith(IN_FORCE)
            excess = used - limit if limit is not None and not is_enforced else 0
            self._tell(status.id, "memory", excess, limit or 0)
        for replica in {*over, *(r for r, kind in self._told if kind == "gpu_memory")}:
            declared = device_bytes.get(replica, 0) - over.get(replica, 0)
            self._tell(replica, "gpu_memory", over.get(replica, 0), declared)

    def _tell(self, replica: str, kind: str, excess: int, declared: int) -> None:
        key = (replica, kind)
        if excess <= 0:
            self._told.discard(key)
        elif key not in self._told:
            self._told.add(key)
            data = {"of": kind, "declared_bytes": declared, "over_bytes": excess}
            stage = next((n for n, s in self.stages.items() if replica in s.runners), None)
            self.services.record("overuse", stage, replica, data)

    async def _device_bytes(self) -> dict[str, int]:
        if not any(s.stage.gpu_memory_bytes for s in self.stages.values()):
            return {}
        by_pid = await self.services.blocking(used_by_pid)
        roots = {s.id: s.pid for s in await self.services.backend.list() if s.pid}
        return {name: sum(by_pid.get(p, 0) for p in tree(pid)) for name, pid in roots.items()}


def tree(pid: int) -> list[int]:
    """A process and its descendants; empty when it is gone."""
    import psutil

    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        return []
