"""What watching costs, in processor time of a command that does a fixed amount of work."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from preroll.instruments.startup import Options, record

STEADY = Path(__file__).resolve().parent / "planted" / "steady.py"
Figures = dict[str, float]


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
    """Under the holder, and whatever else was asked for. The cost is read once it is ready; the
    work of explaining comes after that, and is no cost of the start."""
    found: list[Cost] = []

    async def on_ready() -> None:
        worker = next(p for p in psutil.Process().children(recursive=True) if is_steady(p))
        watchers = [worker.ppid()]
        watchers += [p.pid for p in psutil.Process().children() if p.name() == "preroll-trace"]
        found.append(Cost(cpu_s(worker.pid), sum(map(cpu_s, watchers))))

    words = (sys.executable, str(STEADY))
    await record(Options(words, "^ready", recorder=recorder, hook=hook, on_ready=on_ready))
    return found[0]


def is_steady(process: psutil.Process) -> bool:
    try:
        return str(STEADY) in process.cmdline()
    except psutil.Error:
        return False


def overhead(rounds: int) -> Figures:
    """Medians over rounds in which every way takes its turn."""
    ways = {"stamp": ("off", False), "sampled": ("proc", True)}
    if os.geteuid() == 0:
        ways["traced"] = ("tracefs", True)
    alone: list[float] = []
    more: dict[str, list[float]] = {name: [] for name in ways}
    watchers: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        base = bare().command_s
        alone.append(base)
        for name, (recorder, hook) in ways.items():
            cost = asyncio.run(watched(recorder, hook))
            more[name].append((cost.command_s + cost.watchers_s - base) / base)
            watchers[name].append(cost.watchers_s / base)
    figures: Figures = {"overhead_command_s": statistics.median(alone)}
    for name in ways:
        figures[f"overhead_{name}"] = statistics.median(more[name])
        figures[f"overhead_{name}_watchers"] = statistics.median(watchers[name])
    return figures
