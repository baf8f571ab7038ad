"""SIGKILL of control, door, holders and workers at random instants under load, with invariants.

PREROLL_KILLS sets how many kills the long run makes, PREROLL_SEED which. Kills come on average
every 0.25 s: faster than control comes back, so that it is often killed while it adopts or starts.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "serve"))

from served import Served, engine_stage, tokens, until

from preroll.backends.processes import is_alive
from preroll.events import read
from preroll.serve.doorhouse import DOOR_ID
from preroll.serve.statedir import read_json

QUICK_KILLS = 30
LONG_KILLS = int(os.environ.get("PREROLL_KILLS", "0"))
SEED = int(os.environ.get("PREROLL_SEED", "1"))
REPLICAS = 3
CLIENTS = 4
WEIGHTS = {"control": 3, "door": 2, "door's holder": 1, "holder": 3, "worker": 4}
MEAN_GAP_S = 0.25
PAUSE_S = 0.05
"""After a request that was not answered: no busy loop beside what is measured."""
MAX_OPEN_FILES = 60
SETTLE_S = 60.0
ENGINE = ("--interval", "0.02", "--tokens", "10")


@dataclass(slots=True)
class History:
    """What each request met: ok, refused (429/503/504), failed, or unknown (no whole answer)."""

    outcomes: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def note(self, request_id: str, outcome: str) -> None:
        if request_id in self.outcomes:
            self.violations.append(f"{request_id}: a second answer")
        self.outcomes[request_id] = outcome


class Client(threading.Thread):
    """Sends streams one after the other, each with an id of its own."""

    def __init__(self, service: Served, number: int, history: History) -> None:
        super().__init__(daemon=True)
        self.service, self.number, self.history = service, number, history
        self.stopping = threading.Event()

    def run(self) -> None:
        count = 0
        while not self.stopping.is_set():
            count += 1
            request_id = f"client{self.number}-{count}"
            outcome = self.one(request_id)
            self.history.note(request_id, outcome)
            if outcome != "ok":
                self.stopping.wait(PAUSE_S)

    def one(self, request_id: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        fields = {"content-type": "application/json", "x-request-id": request_id}
        body = json.dumps({"messages": [], "stream": True})
        try:
            connection.request("POST", "/v1/chat/completions", body, fields)
            response = connection.getresponse()
            return self.judge(request_id, response, response.read())
        except (OSError, http.client.HTTPException):
            return "unknown"
        finally:
            connection.close()

    def judge(self, request_id: str, response: http.client.HTTPResponse, body: bytes) -> str:
        """The body came whole, as HTTP has it: then it must say truly how the request ended."""
        if response.status in (429, 503):
            if response.getheader("retry-after") is None:
                self.history.violations.append(f"{request_id}: refused without Retry-After")
            return "refused"
        if response.status != 200:
            return "refused" if response.status == 504 else "failed"
        received = tokens(body)
        if received[-1:] == ["[DONE]"] and len(received) == 11:
            return "ok"
        if "error" in received:
            return "failed"
        self.history.violations.append(f"{request_id}: a clean end without [DONE]: {received}")
        return "failed"


@dataclass(slots=True)
class Killer:
    """Kills by weight; control is started again at once, the others must come back alone."""

    service: Served
    chance: random.Random
    count: Counter[str] = field(default_factory=Counter)

    def kill(self) -> None:
        victim = self.chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        if victim == "control":
            self.kill_control()
            return
        pids = list(self.candidates(victim))
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(pids), signal.SIGKILL)
                self.count[victim] += 1

    def kill_control(self) -> None:
        self.service.kill()
        self.count["control"] += 1
        time.sleep(self.chance.uniform(0, 0.2))
        self.service.start(wait=False)

    def candidates(self, victim: str) -> Iterator[int]:
        """From the files that holders leave: asking would wait for those that are just dying."""
        is_door, name = victim.startswith("door"), ("pid", "pid_start_ticks")
        if victim.endswith("holder"):
            name = ("holder_pid", "holder_start_ticks")
        folders = self.service.state.holders
        for folder in sorted(folders.iterdir() if folders.is_dir() else ()):
            status = read_json(folder / "status.json") or {}
            pid, ticks = status.get(name[0]), status.get(name[1])
            if (folder.name == DOOR_ID) == is_door and pid and is_alive(pid, ticks):
                yield pid


def open_files(pid: int) -> int:
    with suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0


def settled(service: Served) -> bool:
    """As many ready replicas as wanted, nothing else, control and door there."""
    if service.process is not None and service.process.poll() is not None:
        service.start(wait=False)  # it was killed while it started and has not come up
    try:
        seen = service.survey()
        states = [one.state for one in seen.replicas]
        return (
            seen.control_pid == (service.process.pid if service.process else None)
            and seen.door is not None
            and states == ["ready"] * REPLICAS
            and service.chat()[0] == 200
        )
    except OSError:
        return False


def run(tmp_path: Path, kills: int, seed: int) -> None:
    journal = tmp_path / "journal"
    options = (*ENGINE, "--journal", str(journal), "--setsid-child")
    toml = engine_stage(*options, replicas=str(REPLICAS), max_concurrency="4")
    service = Served(tmp_path, toml)
    history = History()
    clients = [Client(service, n, history) for n in range(CLIENTS)]
    killer = Killer(service, random.Random(seed))
    try:
        service.start()
        for client in clients:
            client.start()
        while killer.count.total() < kills:
            time.sleep(killer.chance.expovariate(1 / MEAN_GAP_S))
            killer.kill()
        killer.kill_control()  # the next one knows of no crash loop, so that nothing is held back
        until(lambda: settled(service), f"all is well again after {killer.count}", SETTLE_S)
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(60)
        print(dict(killer.count), dict(Counter(history.outcomes.values())))
        check(service, history, journal)
        assert service.stop() == 0
        assert service.pids() == [] and service.holder_pids() == []
    except BaseException:
        tell(service, killer)
        raise
    finally:
        for client in clients:
            client.stopping.set()
        service.end()


def tell(service: Served, killer: Killer) -> None:
    """What a failure is understood by."""
    print(killer.count, "control:", service.process and service.process.poll())
    print("\n".join(service.output[-60:]))
    if service.state.holders.is_dir():
        for one in (service.survey().door, *service.survey().replicas):
            print(one)
        print((service.state.holder("door-1") / "log").read_text()[-3000:])
    for pid in service.pids():
        print(pid, Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))


def check(service: Served, history: History, journal: Path) -> None:
    began = Counter(journal.read_text().split())
    counts = Counter(history.outcomes.values())
    assert history.violations == []
    assert [i for i, n in began.items() if n > 1] == [], "a request ran twice"
    refused = {i for i, outcome in history.outcomes.items() if outcome == "refused"}
    assert refused & set(began) == set(), "a refused request ran"
    finished = {i for i, outcome in history.outcomes.items() if outcome == "ok"}
    assert finished <= set(began) and counts["ok"] > 0, counts
    until(lambda: wrongs(service) == [], lambda: wrongs(service))
    with sqlite3.connect(service.state.events) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    numbers = [event.seq for event in read(service.state.events)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "an event is missing"


def wrongs(service: Served) -> list[str]:
    """One owner per worker: each process belongs to a living holder, each holder to one worker."""
    seen = service.survey()
    holders, pids = service.holder_pids(), service.pids()
    found = []
    if len(holders) != REPLICAS + 1:
        found.append(f"holders: {holders}")
    # each replica is its engine and the child that the engine put into a session of its own
    if len(pids) != 2 * REPLICAS + 1:
        found.append(f"processes: {pids}")
    trees = [one.status.usage.processes for one in seen.replicas if one.status.usage]
    if trees != [2] * REPLICAS:
        found.append(f"processes by replica: {trees}")
    names = {p.name for p in service.state.run.glob("*.sock")}
    live = {f"{one.status.id}.sock" for one in seen.replicas}
    if names != live | {"door.sock", "door-1.sock", "internal.sock"}:
        found.append(f"sockets: {names}")
    if seen.door is None or not seen.door.pid:
        return [*found, f"door: {seen.door}"]
    files = {pid: open_files(pid) for pid in (seen.door.pid, seen.control_pid or 0, *holders)}
    return found + [f"{n} files open: {p}" for p, n in files.items() if not 0 < n < MAX_OPEN_FILES]


def test_kills_at_random_instants_violate_no_invariant(tmp_path: Path) -> None:
    run(tmp_path, QUICK_KILLS, SEED)


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.skipif(not LONG_KILLS, reason="make chaos runs it (PREROLL_KILLS)")
def test_many_kills_violate_no_invariant(tmp_path: Path) -> None:
    run(tmp_path, LONG_KILLS, SEED)
