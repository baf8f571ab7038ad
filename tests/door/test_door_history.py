"""Queue history under random kills: every id is answered once; nothing is lost or made up."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from door_bench import Bench, Door, replica, stage
from door_wire import PATIENCE_S, ConnectionEnded, sse_events, wait_until

SERVER = """
import os, socket, sys, threading, time
path, log = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen(512)

def serve(sock):
    held = b""
    while True:
        while b"\\r\\n\\r\\n" not in held:
            data = sock.recv(65536)
            if not data:
                return
            held += data
        head, held = held.split(b"\\r\\n\\r\\n", 1)
        fields = dict(l.lower().split(b": ", 1) for l in head.split(b"\\r\\n")[1:])
        length = int(fields.get(b"content-length", 0))
        while len(held) < length:
            held += sock.recv(65536)
        body, held = held[:length], held[length:]
        name = fields[b"x-request-id"].decode()
        os.write(log, f"start {name}\\n".encode())
        if b"stream" in body:
            sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n"
                         b"Transfer-Encoding: chunked\\r\\n\\r\\n")
            for i in range(4):
                time.sleep(0.004)
                event = b'data: {"choices":[{"delta":{"content":"%d"}}]}\\n\\n' % i
                sock.sendall(b"%x\\r\\n%s\\r\\n" % (len(event), event))
            sock.sendall(b"e\\r\\ndata: [DONE]\\n\\n\\r\\n0\\r\\n\\r\\n")
        else:
            time.sleep(0.01)
            sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s"
                         % (len(name), name.encode()))
        os.write(log, f"end {name}\\n".encode())

def run(sock):
    try:
        serve(sock)
    except OSError:
        pass
    finally:
        sock.close()

while True:
    sock, _ = listener.accept()
    threading.Thread(target=run, args=(sock,), daemon=True).start()
"""


class Process:
    """A replica in a process of its own, so that SIGKILL is real."""

    def __init__(self, root: Path, name: str) -> None:
        self.path, self.log = root / f"{name}.http", root / f"{name}.log"
        self.address = f"unix:{self.path}"
        self.start()

    def start(self) -> None:
        argv = [sys.executable, "-I", "-S", "-c", SERVER, str(self.path), str(self.log)]
        self.process = subprocess.Popen(argv)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def lines(self, kind: str) -> list[str]:
        if not self.log.exists():
            return []
        found = (line.split() for line in self.log.read_text().splitlines())
        return [parts[1] for parts in found if len(parts) == 2 and parts[0] == kind]


@dataclass
class History:
    """What clients saw, by request id."""

    invoked: dict[str, float] = field(default_factory=dict)
    ended: dict[str, list[str]] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    kills: list[tuple[float, float]] = field(default_factory=list)
    """From before each kill to when the process was gone."""
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def invoke(self, name: str) -> None:
        with self.lock:
            if name in self.invoked:
                self.faults.append(f"{name}: the test asks twice")
            self.invoked[name] = time.monotonic()

    def end(self, name: str, outcome: str) -> None:
        with self.lock:
            self.ended.setdefault(name, []).append(outcome)
            self.spans[name] = (self.invoked[name], time.monotonic())

    def saw_kill(self, name: str) -> bool:
        """Whether a replica was killed while this request was under way."""
        began, ended = self.spans[name]
        return any(began <= gone and before <= ended for before, gone in self.kills)

    def fault(self, text: str) -> None:
        with self.lock:
            self.faults.append(text)


def judge(history: History, name: str, door: Door, is_stream: bool) -> str:
    """One request; its outcome as the client sees it: ok, refused, fail (known), unknown (cut)."""
    body = json.dumps({"model": "m", **({"stream": True} if is_stream else {})})
    fields = [("Content-Type", "application/json"), ("x-request-id", name)]
    try:
        answer = door.get("/v1/chat/completions", body, fields)
    except (ConnectionEnded, OSError) as error:
        history.fault(f"{name}: no answer at all: {error!r}")
        return "unknown"
    if answer.status in (429, 503, 504):
        if answer.status != 504 and not 1 <= int(answer.get("retry-after") or 0) <= 60:
            history.fault(f"{name}: {answer.status} without Retry-After")
        return "refused"
    if answer.status == 502:
        return "unknown"
    if answer.status != 200 or answer.get("x-request-id") != name:
        history.fault(f"{name}: {answer}")
        return "fail"
    if not is_stream:
        if answer.is_whole and answer.body.decode() != name:
            history.fault(f"{name}: got another's answer {answer.body!r}")
        return "ok" if answer.is_whole else "unknown"
    events = sse_events(answer.body)
    terminal = [text for kind, text in events if kind == "error" or text == "[DONE]"]
    if len(terminal) != 1 or events[-1][1] != terminal[0]:
        history.fault(f"{name}: {len(terminal)} terminal events: {answer.body[-300:]!r}")
    if (terminal == ["[DONE]"]) != answer.is_whole:
        history.fault(f"{name}: a broken stream ended cleanly, or a whole one did not")
    return "ok" if answer.is_whole else "unknown"


def run_clients(history: History, door: Door, seconds: float, num: int) -> None:
    end = time.monotonic() + seconds

    def client(number: int) -> None:
        count = 0
        while time.monotonic() < end:
            name = f"c{number}-{count}"
            count += 1
            history.invoke(name)
            history.end(name, judge(history, name, door, count % 3 == 0))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(num)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 4 * PATIENCE_S)
        assert not thread.is_alive(), "a client waits for ever"


def check(history: History, processes: list[Process], num_kills: int) -> dict[str, int]:
    assert not history.faults, history.faults[:5]
    assert sorted(history.invoked) == sorted(history.ended), "lost or made up"
    assert all(len(outcomes) == 1 for outcomes in history.ended.values()), "answered twice"
    started = [name for process in processes for name in process.lines("start")]
    finished = {name for process in processes for name in process.lines("end")}
    assert len(started) == len(set(started)), "ran twice"
    assert set(started) <= set(history.invoked), "ran without having been asked for"
    by_outcome: dict[str, set[str]] = {
        "ok": set(),
        "refused": set(),
        "fail": set(),
        "unknown": set(),
    }
    for name, (outcome,) in history.ended.items():
        by_outcome[outcome].add(name)
    assert not by_outcome["refused"] & set(started), "refused, and ran all the same"
    assert by_outcome["ok"] <= set(started)
    assert len(by_outcome["ok"] - finished) <= 4 * num_kills, "answered before its end"
    strange = [name for name in by_outcome["unknown"] if not history.saw_kill(name)]
    assert not strange, f"unknown outcomes outside of any fault: {strange}"
    return {outcome: len(names) for outcome, names in by_outcome.items()}


def num_descriptors(door: Door) -> int:
    return len(list(Path(f"/proc/{door.pid}/fd").iterdir()))


def watch_queue(door: Door, most: int, history: History, is_over: threading.Event) -> None:
    while not is_over.wait(0.02):
        queued = door.state()["queued"]
        if queued > most:
            history.fault(f"{queued} queued, at most {most} may be")


def run(bench: Bench, seconds: float, num_kills: int, seed: int) -> dict[str, int]:
    processes = [Process(bench.root, name) for name in ("a", "b")]
    try:
        wait_until(lambda: all(p.path.exists() for p in processes), "the replicas listen")
        tables = [replica(p.address, 3, id=p.path.stem) for p in processes]
        table = stage(*tables, models=("m",), max_queue=4, max_wait_ms=1500, default_service_ms=20)
        door = bench.door({"chat": table})
        history, is_over = History(), threading.Event()
        descriptors = num_descriptors(door)
        # What never ran has its place beyond the bound; it is no more than held a slot.
        watcher = threading.Thread(target=watch_queue, args=(door, 4 + 6, history, is_over))
        watcher.start()
        chooser = random.Random(seed)

        def kill_at_random() -> None:
            for _ in range(num_kills):
                time.sleep(seconds / (num_kills + 1) * chooser.uniform(0.5, 1.0))
                victim = chooser.choice(processes)
                before = time.monotonic()
                victim.kill()
                history.kills.append((before, time.monotonic()))
                time.sleep(chooser.uniform(0.0, 0.15))
                victim.start()

        killer = threading.Thread(target=kill_at_random)
        killer.start()
        run_clients(history, door, seconds, 14)
        killer.join()
        is_over.set()
        watcher.join()
        door.wait_for_state(in_flight=0, queued=0)
        counts = check(history, processes, num_kills)
        state = door.state()
        assert state["arrivals_total"] == len(history.invoked)
        books = state["finished_total"] + state["refused_total"] + state["cancelled_total"]
        assert state["arrivals_total"] == books
        # The clients' are closed; one idle connection per slot may be kept.
        wait_until(lambda: num_descriptors(door) <= descriptors + 6, "no descriptor leaks")
        return counts
    finally:
        for process in processes:
            process.kill()


def test_without_faults_every_outcome_is_known(bench: Bench) -> None:
    counts = run(bench, 3, 0, 1)
    assert counts["ok"] > 50


@pytest.mark.parametrize("seed", [1, 2])
def test_random_kills_lose_nothing(bench: Bench, seed: int) -> None:
    counts = run(bench, 5, 6, seed)
    assert counts["ok"] > 50


@pytest.mark.chaos
@pytest.mark.timeout(700)
@pytest.mark.parametrize("seed", range(10))
def test_many_random_kills_lose_nothing(bench: Bench, seed: int) -> None:
    counts = run(bench, 50, 100, seed)
    assert counts["ok"] > 500
