"""A state directory with its backend; after each test nothing of its processes may be left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from preroll.backends.base import Line, ProcessSpec, ProcessStatus
from preroll.backends.local import LocalBackend

T = TypeVar("T")
DEADLINE_S = 60.0


class Lab:
    """Makes specs and backends over one state directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def backend(self) -> LocalBackend:
        return LocalBackend(self.root)

    def spec(self, *argv: str, id: str = "p", **more: Any) -> ProcessSpec:
        more.setdefault("env", {"PATH": os.environ["PATH"]})
        return ProcessSpec(id=id, argv=argv, **more)

    def shell(self, script: str, **more: Any) -> ProcessSpec:
        return self.spec("sh", "-c", script, **more)

    def python(self, code: str, *args: str, **more: Any) -> ProcessSpec:
        return self.spec(sys.executable, "-I", "-S", "-c", code, *args, **more)

    def run(self, body: Callable[[LocalBackend], Coroutine[Any, Any, T]]) -> T:
        """Runs a test's body with a backend, within the deadline."""

        async def bounded() -> T:
            backend = self.backend()
            try:
                async with asyncio.timeout(DEADLINE_S):
                    return await body(backend)
            finally:
                backend.close()

        return asyncio.run(bounded())

    def log(self, id: str = "p") -> list[str]:
        return (self.root / "holders" / id / "log").read_text(errors="replace").splitlines()

    def saved_status(self, id: str = "p") -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.root / "holders" / id / "status.json").read_text())
        return value

    def processes(self) -> list[int]:
        """All living processes that were started under a holder of this state directory."""
        mark = b"PREROLL_HOLDER_DIR=" + os.fsencode(self.root)
        return [pid for pid in pids() if mark in read(f"/proc/{pid}/environ")]

    def holders(self) -> list[int]:
        folder = os.fsencode(self.root)
        return [
            pid
            for pid in pids()
            if b"preroll-holder" in (line := read(f"/proc/{pid}/cmdline")) and folder in line
        ]

    def clean(self) -> None:
        for path in (self.root / "run").resolve().glob("*.sock"):
            with suppress(OSError):
                end_holder(path)
        for pid in self.holders() + self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def end_holder(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        with client.makefile("rw") as file:
            for op in ("kill", "release"):
                file.write(json.dumps({"op": op}) + "\n")
                file.flush()
                file.readline()


def pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def is_gone(pid: int) -> bool:
    """Ended: no such process, or a zombie that somebody will collect."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1] in ([], [b"Z"])


async def until(condition: Callable[[], object], what: str = "condition") -> None:
    """Polls a condition until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come within {DEADLINE_S} s")
        await asyncio.sleep(0.005)


async def until_status(
    backend: LocalBackend, condition: Callable[[ProcessStatus], bool], id: str = "p"
) -> ProcessStatus:
    """Polls the status until the condition holds for it."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition(status := await backend.status(id)):
        assert time.monotonic() < deadline, status
        await asyncio.sleep(0.005)
    return status


async def texts(backend: LocalBackend, id: str = "p", since: int = 0) -> list[str]:
    return [line.text async for line in backend.lines(id, since)]


async def line_with(backend: LocalBackend, text: str, id: str = "p") -> Line:
    """The first line that contains `text`, waited for."""
    async for line in backend.lines(id, follow=True):
        if text in line.text:
            return line
    raise AssertionError(f"{text!r} is not in the output: {await texts(backend, id)}")
