"""What watching costs, in processor time of commands that do a fixed amount of work."""

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

from preroll.instruments.ablation.exact import paired
from preroll.instruments.startup import Options, record

PLANTED = Path(__file__).resolve().parent / "planted"
STEADY, IMPORTING = PLANTED / "steady.py", PLANTED / "importing.py"
Figures = dict[str, float]
# A recorder, and whether imports are hooked.
Way = tuple[str, bool]
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


def bare(script: Path) -> Cost:
    """The command with its output into a pipe that is read at once, nothing else."""
    words = [sys.executable, str(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "ready\n":
                break
        found = Cost(cpu_s(process.pid))
        process.send_signal(signal.SIGKILL)
    return found


async def watched(script: Path, recorder: str, hook: bool) -> Cost:
    """Under the holder, and whatever else was asked for, until ready. What explaining costs comes
    after that, and is no cost of the start."""
    command_s = holder_s = 0.0
    recorded: list[tuple[int, float]] = [(0, 0.0)]

    async def on_ready() -> None:
        nonlocal command_s, holder_s
        worker = next(p for p in psutil.Process().children(recursive=True) if is_of(p, script))
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
    words = (sys.executable, str(script))
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


def is_of(process: psutil.Process, script: Path) -> bool:
    try:
        return str(script) in process.cmdline()
    except psutil.Error:
        return False


def beside_bare(script: Path, ways: dict[str, Way], rounds: int) -> Figures:
    """Every way and none take turns, in another order in every round; each is compared with the
    bare run of its own round. Shares of the bare command's time: estimate (Hodges-Lehmann) and 95 %
    interval of the whole, and the median of what the watchers themselves took."""
    alone: list[float] = []
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    names = ["", *ways]
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            cost = asyncio.run(watched(script, *ways[name])) if name else bare(script)
            if number == 0:
                continue  # the first round finds files cold
            if name:
                costs[name].append(cost)
            else:
                alone.append(cost.command_s)
    figures: Figures = {"command_s": statistics.median(alone)}
    for name, found in costs.items():
        more = [
            (cost.command_s + cost.watchers_s) / base - 1
            for cost, base in zip(found, alone, strict=True)
        ]
        result = paired(more)
        figures[name] = result.estimate
        figures |= {f"{name}_low": result.low or 0.0, f"{name}_high": result.high or 0.0}
        watchers = (cost.watchers_s / base for cost, base in zip(found, alone, strict=True))
        figures[f"{name}_watchers"] = statistics.median(watchers)
    return figures


def overhead(rounds: int) -> Figures:
    """`rounds` of at least 6: fewer have no interval."""
    ways: dict[str, Way] = {"stamp": ("off", False), "sampled": ("proc", True)}
    if os.geteuid() == 0:
        ways["traced"] = ("tracefs", True)
    figures = {f"overhead_{k}": v for k, v in beside_bare(STEADY, ways, rounds).items()}
    hooked: dict[str, Way] = {"hook": ("off", True), "sampled": ("proc", True)}
    of_imports = beside_bare(IMPORTING, hooked, rounds)
    return figures | {f"overhead_imports_{k}": v for k, v in of_imports.items()}
