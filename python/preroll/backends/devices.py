"""Accounting of devices: who has which, what share of memory was promised, one start at a time."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from preroll.core import Resources
from preroll.errors import UnavailableError

VISIBLE = "CUDA_VISIBLE_DEVICES"
MEMORY = "PREROLL_GPU_MEMORY_BYTES"
"""Tells a worker the share that it may use; no driver enforces it."""
QUERY_TIMEOUT_S = 20.0


class Share(StrEnum):
    """`exclusive`: whole devices. `declared`: a share of memory that nothing enforces."""

    NONE = "none"
    EXCLUSIVE = "exclusive"
    DECLARED = "declared"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The devices of one replica, and what its environment must say of them."""

    devices: tuple[str, ...] = ()
    share: Share = Share.NONE
    memory_bytes: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Devices:
    """Assigns devices to replicas. `memory_bytes` maps each device to its memory, None: unknown."""

    def __init__(self, memory_bytes: Mapping[str, int | None]) -> None:
        self._memory_bytes = dict(memory_bytes)
        self._locks = {device: asyncio.Lock() for device in memory_bytes}
        self._held: dict[str, Assignment] = {}

    def assign(self, replica: str, wanted: Resources) -> Assignment:
        """Devices for a replica: whole ones that nobody has, or the share that fits tightest.

        Raises UnavailableError that says what is wanted and what each device has left.
        """
        chosen: tuple[str, ...] = ()
        share = Share.NONE
        if wanted.gpus:
            free = [device for device in self._memory_bytes if not self._users(device)]
            chosen, share = tuple(free[: wanted.gpus]), Share.EXCLUSIVE
        elif wanted.gpu_memory_bytes:
            chosen, share = self._tightest(wanted.gpu_memory_bytes), Share.DECLARED
        if len(chosen) < (wanted.gpus or bool(wanted.gpu_memory_bytes)):
            raise UnavailableError(f"{replica} needs {_wish(wanted)}; {self._describe()}")
        assignment = Assignment(
            chosen, share, wanted.gpu_memory_bytes, environment(chosen, wanted.gpu_memory_bytes)
        )
        self.hold(replica, assignment)
        return assignment

    def hold(self, replica: str, assignment: Assignment) -> None:
        """Notes what a replica has; for adopted ones."""
        self._held[replica] = assignment

    def release(self, replica: str) -> None:
        self._held.pop(replica, None)

    @asynccontextmanager
    async def starting(self, assignment: Assignment) -> AsyncIterator[None]:
        """Held from spawn to ready: starts on one device come one after the other."""
        async with AsyncExitStack() as stack:
            # Always in one order, so that two starts cannot wait for each other.
            for device in sorted(assignment.devices):
                if device in self._locks:
                    await stack.enter_async_context(self._locks[device])
            yield

    def overuse(self, used_bytes: Mapping[str, int]) -> dict[str, int]:
        """Replicas that use more device memory than was declared, and by how many bytes."""
        return {
            replica: used - held.memory_bytes
            for replica, used in used_bytes.items()
            if (held := self._held.get(replica))
            and held.memory_bytes is not None
            and used > held.memory_bytes
        }

    def _users(self, device: str) -> list[Assignment]:
        return [held for held in self._held.values() if device in held.devices]

    def _left(self, device: str) -> int | None:
        """Bytes that nobody was promised; None where the device's memory is unknown."""
        users, total = self._users(device), self._memory_bytes[device]
        if any(user.share is Share.EXCLUSIVE for user in users):
            return 0
        return None if total is None else total - sum(user.memory_bytes or 0 for user in users)

    def _tightest(self, wanted_bytes: int) -> tuple[str, ...]:
        left = {device: self._left(device) for device in self._memory_bytes}
        known = {d: n for d, n in left.items() if n is not None and n >= wanted_bytes}
        if known:
            return (min(known, key=lambda device: known[device]),)
        return tuple(device for device, n in left.items() if n is None)[:1]

    def _describe(self) -> str:
        if not self._memory_bytes:
            return "this machine has no device that may be used"
        parts = [f"{device}: {self._state(device)}" for device in self._memory_bytes]
        return "left are " + ", ".join(parts) + "; stop a replica or ask for less"

    def _state(self, device: str) -> str:
        left = self._left(device)
        users = len(self._users(device))
        amount = "unknown memory" if left is None else f"{left / 2**30:.1f} GiB"
        return f"{amount}, {users} replicas"


def environment(devices: tuple[str, ...], memory_bytes: int | None) -> dict[str, str]:
    """What a replica's environment says of its devices; nothing when it was promised none."""
    env = {VISIBLE: ",".join(devices)} if devices else {}
    if memory_bytes is not None:
        env[MEMORY] = str(memory_bytes)
    return env


def _wish(wanted: Resources) -> str:
    if wanted.gpus:
        return f"{wanted.gpus} whole devices"
    return f"{(wanted.gpu_memory_bytes or 0) / 2**30:.1f} GiB of a device"


def detect() -> dict[str, int | None]:
    """The devices of this machine that we may see, with their memory in bytes.

    Source: `nvidia-smi`; without that program there is none.
    """
    rows = _query("--query-gpu=index,uuid,memory.total")
    visible = os.environ.get(VISIBLE)
    return select(parse_devices(rows), visible)


def used_by_pid() -> dict[int, int]:
    """Device memory in bytes of each process that uses some; empty where nothing tells."""
    used: dict[int, int] = {}
    for row in _query("--query-compute-apps=pid,used_memory").splitlines():
        pid, _, size = row.partition(",")
        if pid.strip().isdigit() and size.strip().isdigit():
            used[int(pid)] = used.get(int(pid), 0) + (int(size) << 20)
    return used


def parse_devices(rows: str) -> dict[str, tuple[str, int | None]]:
    """index → (uuid, memory in bytes) from comma-separated rows; memory is in MiB there."""
    devices: dict[str, tuple[str, int | None]] = {}
    for row in rows.splitlines():
        index, uuid, size = (part.strip() for part in row.split(","))
        devices[index] = (uuid, int(size) << 20 if size.isdigit() else None)
    return devices


def select(
    devices: Mapping[str, tuple[str, int | None]], visible: str | None
) -> dict[str, int | None]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order and under the names it uses."""
    if visible is None:
        return {index: memory for index, (_, memory) in devices.items()}
    by_name = dict(devices) | {uuid: (uuid, memory) for uuid, memory in devices.values()}
    chosen: dict[str, int | None] = {}
    for name in (part.strip() for part in visible.split(",")):
        if name not in by_name:
            break  # CUDA too ignores what comes after the first unknown name
        chosen[name] = by_name[name][1]
    return chosen


def _query(what: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    arguments = [program, what, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
