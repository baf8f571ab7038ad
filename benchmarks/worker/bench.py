"""`make bench-worker`: what the worker itself costs, and how soon code learns that a client left.

The worker alone, on its Unix socket, driven by a client that waits for each answer. CPU time is the
worker process's own, from /proc; figures go to build/bench/worker.json.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from kinds import NUM_CHUNKS

HERE = Path(__file__).parent
OUT = Path("build/bench/worker.json")
CONNECTIONS = (1, 16)
ANSWERS = ("async", "thread", "batch")
STREAMS = ("async", "thread", "steps")
WAITS = ("async", "thread", "generator", "steps")
NUM_REQUESTS, NUM_STREAMS, NUM_LEAVINGS = 2000, 40, 50


class Worker:
    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/socket"
        settings = json.dumps({"max_concurrency": 64})
        words = [sys.executable, "-m", "preroll.worker", "kinds:Kinds", "--uds", self.path]
        self.process = subprocess.Popen(
            words,
            cwd=HERE,
            env={**os.environ, "PREROLL_WORKER": settings},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("phase ready\n"):
                return
        raise RuntimeError("the worker did not start")

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(60)
        made.connect(self.path)
        return made

    def cpu_s(self) -> float:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()


def request(path: str) -> bytes:
    """As the door sends it."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\n"
        "x-request-id: 0af7651916cd43dd8448eb211c80319c\r\n"
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
        "content-type: application/octet-stream\r\ncontent-length: 1\r\n\r\nx"
    ).encode()


def exchange(client: socket.socket, path: str) -> bytes:
    """Sends one request and reads its answer to the end, by its length or its last chunk."""
    client.sendall(request(path))
    data = client.recv(1 << 16)
    while b"\r\n\r\n" not in data:
        data += client.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    if b"content-length: " in head:
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += client.recv(1 << 16)
        return body
    tail = body
    while not tail.endswith(b"0\r\n\r\n"):
        tail = tail[-8:] + client.recv(1 << 16)
    return tail


def cost_us(worker: Worker, path: str, connections: int, num: int) -> float:
    """Processor time of one request to `path`, in microseconds."""
    clients = [worker.connect() for _ in range(connections)]
    for client in clients:
        exchange(client, path)

    def repeat(client: socket.socket) -> None:
        for _ in range(num // connections):
            exchange(client, path)

    before_s = worker.cpu_s()
    threads = [threading.Thread(target=repeat, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent_s = worker.cpu_s() - before_s
    for client in clients:
        client.close()
    return spent_s / (num // connections * connections) * 1e6


def leaving_ms(worker: Worker, kind: str) -> list[float]:
    """How long after its client closed the connection the code learned of it."""
    control = worker.connect()
    found = []
    for _ in range(NUM_LEAVINGS):
        client = worker.connect()
        client.sendall(request(f"/wait/{kind}"))
        if kind in ("generator", "steps"):
            client.recv(1)
        time.sleep(0.02)  # the code runs by now: part of the scenario, nothing is waited for
        left_s = time.monotonic()
        client.close()
        learned_s = 0.0
        while learned_s < left_s:
            learned_s = float(exchange(control, "/learned"))
            time.sleep(0.002)
        found.append((learned_s - left_s) * 1e3)
    control.close()
    return found


def main() -> None:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(folder)
        try:
            for connections in CONNECTIONS:
                for kind in ANSWERS:
                    cost = cost_us(worker, f"/answer/{kind}", connections, NUM_REQUESTS)
                    figures[f"us_per_request_{kind}_{connections}"] = round(cost, 1)
                for kind in STREAMS:
                    cost = cost_us(worker, f"/stream/{kind}", connections, NUM_STREAMS)
                    figures[f"us_per_chunk_{kind}_{connections}"] = round(cost / NUM_CHUNKS, 2)
            for kind in WAITS:
                found = leaving_ms(worker, kind)
                figures[f"leaving_ms_p50_{kind}"] = round(statistics.median(found), 2)
                figures[f"leaving_ms_max_{kind}"] = round(max(found), 2)
        finally:
            worker.stop()
    for name, value in figures.items():
        print(f"{name:32} {value}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
