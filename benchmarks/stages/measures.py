"""The measurements: CPU per request and per chunk, starts, TTFT and throughput under load."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from servers import Server, preroll, stage

from preroll.events import iter_starts

LOAD = str(Path(sys.executable).parent / "preroll-load")
Json = dict[str, Any]


def cpu_us(
    server: Server, path: str, body: Json, connections: int, requests: int
) -> tuple[float, float]:
    """CPU microseconds per request: of the server, and of its door alone. Raises RuntimeError when
    any request fails."""
    template = {
        "path": path,
        "headers": {"content-type": "application/json"},
        "body": json.dumps(body),
    }
    spec = {
        "version": 1,
        "target": f"tcp:127.0.0.1:{server.port}",
        "requests": [template],
        "load": {"mode": "closed", "connections": connections},
        "stop": {"requests": requests},
        "detail": "none",
    }
    before_s, door_before_s = server.cpu_s(), server.door_cpu_s()
    ran = subprocess.run(
        [LOAD, "run", "-"], input=json.dumps(spec) + "\n", capture_output=True, text=True
    )
    used_s, door_s = server.cpu_s() - before_s, server.door_cpu_s() - door_before_s
    if ran.returncode:
        raise RuntimeError(f"the load client failed: {ran.stderr.strip()}")
    end = json.loads(ran.stdout.splitlines()[-1])
    if end["ok"] != requests:
        raise RuntimeError(f"{path}: {end['failures']} {end['statuses']}")
    return used_s * 1e6 / requests, door_s * 1e6 / requests


def start_s(folder: Path, keys: dict[str, str]) -> float:
    """Spawn (or fork) to warm of one replica of the heavy stage; the app is started for it."""
    with preroll(folder, stage("heavy", "heavy:Heavy", **keys)) as (_, state):
        deadline = time.monotonic() + 10
        while not (starts := list(iter_starts(state / "events.sqlite"))):
            if time.monotonic() > deadline:
                raise RuntimeError("no start in the log")
            time.sleep(0.05)
    (start,) = starts
    if start.is_forked != ("imports" in keys):
        raise RuntimeError(f"forked: {start.is_forked}, with {keys}")
    return start.total_s


def ask_together(server: Server, path: str, bodies: list[Json], clients: int) -> list[float]:
    """Closed loop: each client sends the next body when it has its answer; seconds to the first
    byte of each body."""
    firsts: list[float] = []
    left = list(bodies)
    lock = threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        while True:
            with lock:
                if not left:
                    return
                body = left.pop()
            began_s = time.monotonic()
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            response.read(1)
            first_s = time.monotonic() - began_s
            response.read()
            if response.status != 200:
                raise RuntimeError(f"{path} answered {response.status}")
            with lock:
                firsts.append(first_s)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(firsts) != len(bodies):
        raise RuntimeError(f"{len(bodies) - len(firsts)} of {len(bodies)} requests failed")
    return firsts


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def embeddings_per_s(server: Server, path: str, count: int, clients: int) -> float:
    bodies = [{"input": f"Sentence {i} is about the weather in spring."} for i in range(count)]
    began_s = time.monotonic()
    ask_together(server, path, bodies, clients)
    return count / (time.monotonic() - began_s)
