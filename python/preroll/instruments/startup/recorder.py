"""The client of `preroll-trace`, which records what every thread of the command was doing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sysconfig
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preroll.errors import UnavailableError
from preroll.instruments.startup.base import Cause, Function, Slice
from preroll.instruments.startup.functions import Samples

PROGRAM = "preroll-trace"
IMPORT_STEP = "_call_with_frames_removed"
ANSWER_S = 20.0
# Explaining walks every recorded event once; a start of minutes has millions.
EXPLAIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of the tree: its process, its name, and the thread that created it (0: unknown)."""

    pid: int
    name: str
    parent: int


@dataclass(frozen=True, slots=True)
class Recording:
    """The partition of one interval, and who is who in it."""

    mode: str
    slices: tuple[Slice, ...]
    threads: Mapping[int, Thread]
    commands: Mapping[int, str]
    notes: tuple[str, ...]
    samples: Samples = field(default_factory=Samples)


def find_program() -> str:
    scripts = Path(sysconfig.get_path("scripts")) / PROGRAM
    found = str(scripts) if scripts.is_file() else shutil.which(PROGRAM)
    if found is None:
        raise UnavailableError(
            f"{PROGRAM} is neither in {scripts.parent} nor in PATH; it is part of the package"
            " preroll-bin: pip install --force-reinstall preroll-bin"
        )
    return found


class Recorder:
    """A recorder of what the calling thread starts from now on."""

    def __init__(self, process: asyncio.subprocess.Process, mode: str, reason: str) -> None:
        self._process = process
        self.mode = mode
        self.reason = reason

    @classmethod
    async def start(cls, mode: str) -> Recorder:
        """Returns once it records. `mode`: auto, tracefs or proc; UnavailableError says why not."""
        process = await asyncio.create_subprocess_exec(
            *(find_program(), "--mode", mode, "--follow", str(threading.get_native_id())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(ANSWER_S):
            line = await process.stdout.readline()
        if not line:
            raise UnavailableError(await _complaint(process))
        started = json.loads(line)
        return cls(process, started["mode"], started["reason"])

    async def follow(self, pid: int, owner: int, spawned_ns: int) -> None:
        """Names the first process of the command, and the one to which its orphans fall."""
        await self._say({"pid": pid, "owner": owner, "spawned_ns": spawned_ns})

    async def explain(self, from_ns: int, to_ns: int, *, by_first: bool) -> Recording:
        """Ends the recording and explains the interval. Raises UnavailableError.

        `by_first`: what ended it is the first process's own end, not what a thread announced.
        """
        await self._say({"from_ns": from_ns, "to_ns": to_ns, "by_first": by_first})
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(EXPLAIN_S):
                text = await self._process.stdout.read()
        except TimeoutError:
            raise UnavailableError(f"{PROGRAM} explained nothing in {EXPLAIN_S:g} s") from None
        if not text:
            raise UnavailableError(await _complaint(self._process))
        return parse(json.loads(text))

    async def _say(self, request: dict[str, int]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await self._process.stdin.drain()
        except ConnectionError:
            raise UnavailableError(await _complaint(self._process)) from None

    async def close(self) -> None:
        """Ends the recorder; it takes its tracer away itself when its input closes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _complaint(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = (await process.stderr.read()).decode(errors="replace").strip()
    return said or f"{PROGRAM} ended with status {await process.wait()}"


def parse(data: dict[str, Any]) -> Recording:
    threads = {
        int(tid): Thread(facts["pid"], facts["name"], facts.get("parent", 0))
        for tid, facts in data["threads"].items()
    }
    notes = []
    if data["lost_pages"]:
        notes.append(f"the kernel dropped events {data['lost_pages']} times: more is unknown")
    if data["is_full"]:
        notes.append("more events than are kept: what came after is unknown")
    if data.get("is_refused"):
        notes.append("functions are not known: a Python's memory may not be read (ptrace_scope?)")
    return Recording(
        mode=data["mode"],
        slices=tuple(_slice(row, threads) for row in data["slices"]),
        threads=threads,
        commands={int(pid): text for pid, text in data["commands"].items()},
        notes=tuple(notes),
        samples=_samples(data),
    )


def _samples(data: dict[str, Any]) -> Samples:
    names = [Function(one["name"], one["file"], one["line"]) for one in data.get("functions", ())]
    stacks = [
        _without_steps([names[number] for number in stack]) for stack in data.get("stacks", ())
    ]
    rows = data.get("samples", ())
    return Samples((t_ns, tid, stacks[number]) for t_ns, tid, number in rows)


def _without_steps(stack: list[Function]) -> tuple[Function, ...]:
    """Importing calls everything through one function of its own, which says nothing."""
    return tuple(one for one in stack if one.name != IMPORT_STEP or len(stack) == 1)


def _slice(row: dict[str, Any], threads: Mapping[int, Thread]) -> Slice:
    tid = row["tid"]
    return Slice(
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        cause=Cause(row["cause"]),
        tid=tid,
        pid=threads[tid].pid if tid in threads else tid,
        depth=row["depth"],
        file=row.get("file"),
        cold_bytes=row.get("cold_bytes", 0),
    )
