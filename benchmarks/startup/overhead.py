"""What watching costs, in processor time of a command that does a fixed amount of work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from preroll.instruments.startup import Options, record

STEADY = Path(__file__).resolve().parent / "planted" / "steady.py"
Figures = dict[str, float]
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of processor time until ready: the command's own, and that of who watches it."""

    command_s: float
    watchers_s: float = 0.0


def cpu_s(pid: int) -> float:
    """Of all threads of a process, to the nanosecond (those that ended are not in it)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def bare() -> Cost:
    """The command with its output into a pipe that is read at once, nothing else."""
    words = [sys.executable, str(STEADY)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "ready\n":
                break
        found = Cost(cpu_s(process.pid))
        process.send_signal(signal.SIGKILL)
    return found


async def watched(recorder: str, hook: bool) -> Cost:
    """Under the holder, and whatever else was asked for, until ready. What explaining costs comes
    after that, and is no cost of the start."""
    command_s = holder_s = 0.0
    recorded: list[tuple[int, float]] = [(0, 0.0)]

    async def on_ready() -> None:
        nonlocal command_s, holder_s
        worker = next(p for p in psutil.Process().children(recursive=True) if is_steady(p))
        command_s, holder_s = cpu_s(worker.pid), cpu_s(worker.ppid())

    async def follow() -> None:
        """The recorder has ended before `on_ready` is called: it is looked at all along."""
        pid = None
        while pid is None:
            await asyncio.sleep(LOOK_S)
            pid = child_named("preroll-trace")
        while True:
            with contextlib.suppress(OSError):
                recorded.append((time.monotonic_ns(), cpu_s(pid)))
            await asyncio.sleep(LOOK_S)

    following = asyncio.create_task(follow()) if recorder != "off" else None
    words = (sys.executable, str(STEADY))
    options = Options(words, "^ready", recorder=recorder, hook=hook, on_ready=on_ready)
    profile = await record(options)
    if following is not None:
        following.cancel()
    ready_ns = profile.spawned_ns + round(profile.total_s * 1e9)
    recorder_s = max(cpu for t_ns, cpu in recorded if t_ns <= ready_ns)
    return Cost(command_s, holder_s + recorder_s)


def child_named(name: str) -> int | None:
    """A child of this process, found by the kernel's list: a walk over /proc would disturb."""
    children = Path("/proc/thread-self/children").read_text().split()
    named = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == name)
    return next((int(pid) for pid in named), None)


def is_steady(process: psutil.Process) -> bool:
    try:
        return str(STEADY) in process.cmdline()
    except psutil.Error:
        return False


def overhead(rounds: int) -> Figures:
    """Every way takes its turn in every round. Of the command the least counts (a busy machine
    only ever adds), of the watchers the median."""
    ways = {"stamp": ("off", False), "sampled": ("proc", True)}
    if os.geteuid() == 0:
        ways["traced"] = ("tracefs", True)
    alone: list[float] = []
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(rounds):
        alone.append(bare().command_s)
        for name, (recorder, hook) in ways.items():
            costs[name].append(asyncio.run(watched(recorder, hook)))
    base = min(alone)
    figures: Figures = {"overhead_command_s": base}
    for name, found in costs.items():
        watchers = statistics.median(cost.watchers_s for cost in found) / base
        more = min(cost.command_s for cost in found) / base - 1
        figures[f"overhead_{name}"] = watchers + more
        figures[f"overhead_{name}_watchers"] = watchers
    return figures
