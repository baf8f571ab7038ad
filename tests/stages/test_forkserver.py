"""Replicas forked from a server that has done the imports: owned, distinct, or else spawned."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipelines import ask
from served import Served, read, until

from preroll.events import read as events

pytestmark = pytest.mark.timeout(120)

SOURCE = """
import os
import random
import sys

import preroll


class Probe(preroll.Stage):
    def load(self):
        if os.environ.get("SLOW"):
            import time
            time.sleep(3600)

    async def __call__(self, body: dict):
        import numpy
        matrix = numpy.ones((600, 600))
        for _ in range(3):
            matrix @ matrix
        return {
            "pid": os.getpid(), "parent": os.getppid(), "argv": sys.argv, "cwd": os.getcwd(),
            "env": dict(os.environ), "imported": "heavy" in sys.modules,
            "random": [random.random(), float(numpy.random.rand())],
            "threads": len(os.listdir("/proc/self/task")),
            "descriptors": [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)],
            "options": dict(self.options),
        }
"""
HEAVY = "import numpy\nprint('heavy: imported', flush=True)\n"
STAGE = """
[stage.probe]
engine = "python"
class = "app:Probe"
imports = ["heavy"]
options = { kind = "probe" }
env = { FLAVOUR = "sweet" }
stop_grace = "5s"
"""


def service_of(serve: Callable[..., Served], more: str = "", heavy: str = HEAVY) -> Served:
    service = serve(STAGE + more, SOURCE)
    (service.folder / "heavy.py").write_text(heavy)
    return service


def probe(service: Served) -> dict[str, Any]:
    status, body, _ = ask(service, "/x", {})
    assert status == 200, body
    answer: dict[str, Any] = json.loads(body)
    return answer


def recorded(service: Served, kind: str) -> list[dict[str, Any]]:
    return [dict(event.data) for event in events(service.state.events, kinds=(kind,))]


def server_pid(service: Served) -> int:
    (server,) = service.survey().forks
    return server.pid or 0


def holder_pid(service: Served, replica: str) -> int:
    found = json.loads(service.state.holder(replica).joinpath("status.json").read_text())
    return int(found["holder_pid"])


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or b"Z" in read(Path(f"/proc/{pid}/stat"))[:60]


def test_a_fork_is_owned_by_its_own_holder_and_has_the_imports(
    serve: Callable[..., Served],
) -> None:
    service = service_of(serve, "replicas = 2\n")
    service.start()
    replicas = service.ready("probe")
    found = {answer["pid"]: answer for answer in (probe(service) for _ in range(12))}
    pids = {service.pid_of(replica): replica for replica in replicas}
    assert set(found) <= set(pids) and len(pids) == 2
    for pid, answer in found.items():
        assert answer["imported"] and answer["options"] == {"kind": "probe"}
        assert answer["parent"] == holder_pid(service, pids[pid])
        assert answer["env"]["FLAVOUR"] == "sweet"
        assert answer["env"]["PREROLL_HOLDER"] == pids[pid]
        assert "PREROLL_ROOM" not in answer["env"] and "OPENBLAS_NUM_THREADS" not in answer["env"]
        assert answer["cwd"] == str(service.folder)
        assert all(target.startswith(("pipe:", "/dev/null")) for target in answer["descriptors"])
        seen = read(Path(f"/proc/{pid}/environ")).split(b"\0")
        assert f"PREROLL_HOLDER={pids[pid]}".encode() in seen
        assert not any(entry.startswith(b"PREROLL") and b"forkserver" in entry for entry in seen)
        assert b"app:Probe" in read(Path(f"/proc/{pid}/cmdline"))
    starts = service.starts(2)
    assert all(start.is_forked for start in starts)
    log = service.state.holders.glob("forkserver-*/log")
    assert sum(path.read_text().count("heavy: imported") for path in log) == 1


def test_thread_pools_and_random_numbers_are_the_replicas_own(
    serve: Callable[..., Served],
) -> None:
    more = "replicas = 2\n"
    service = service_of(serve, more.replace("replicas", "max_concurrency = 1\nreplicas"))
    service.start()
    by_pid: dict[int, dict[str, Any]] = {}
    until(lambda: by_pid.update({(a := probe(service))["pid"]: a}) or len(by_pid) == 2, "both")
    first, second = by_pid.values()
    assert first["random"][0] != second["random"][0]
    assert first["random"][1] != second["random"][1]
    # The loop, the watcher, `load` in a thread; and OpenBLAS beside them where there are more CPUs.
    cpus = len(os.sched_getaffinity(0))
    spawned = serve(STAGE.replace('imports = ["heavy"]', ""), SOURCE)
    spawned.start()
    assert first["threads"] == second["threads"] == probe(spawned)["threads"]
    assert cpus == 1 or first["threads"] > 2
    assert not spawned.starts(1)[0].is_forked


def test_the_starts_of_both_kinds_are_shown_apart(serve: Callable[..., Served]) -> None:
    other = STAGE.replace("stage.probe", "stage.other").replace('imports = ["heavy"]', "")
    service = service_of(serve, other)
    service.start()
    service.starts(2)
    said = service.command("starts", "--state", str(service.state.root)).stdout
    assert "stage probe (forked)" in said and "stage other\n" in said
    assert "(forked)" not in said.split("stage other\n")[1].split("stage probe")[0]


@pytest.mark.parametrize(
    ("heavy", "said"),
    [
        (
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()",
            "thread",
        ),
        ("import socket\nkept = socket.socket()", "is open: socket:["),
        ("import subprocess\nchild = subprocess.Popen(['sleep', '1000'])", "child processes"),
        ("import nowhere_to_be_found", "import heavy: ModuleNotFoundError"),
    ],
)
def test_a_parent_that_is_not_clean_is_not_forked_and_says_why(
    serve: Callable[..., Served], heavy: str, said: str
) -> None:
    service = service_of(serve, heavy=heavy)
    service.start()
    assert not service.starts(1)[0].is_forked
    (refused,) = recorded(service, "fork_refused")
    assert said in refused["reason"]
    until(lambda: not service.survey().forks, "the useless server is ended")


@pytest.mark.parametrize("victim", ["replica", "holder", "server", "server's holder"])
def test_whatever_is_killed_no_orphan_lives_and_the_stage_serves_again(
    serve: Callable[..., Served], victim: str
) -> None:
    service = service_of(serve)
    service.start()
    (replica,) = service.ready("probe")
    pid = service.pid_of(replica)
    (server,) = service.survey().forks
    victims = {
        "replica": pid,
        "holder": holder_pid(service, replica),
        "server": server.pid or 0,
        "server's holder": server.owner_pid,
    }
    os.kill(victims[victim], signal.SIGKILL)
    if victim in ("replica", "holder"):
        until(lambda: is_gone(pid), "the replica has ended with it")
        again = until(lambda: [r for r in service.ready("probe") if r != replica], "another")
        assert len(again) == 1
        assert all(start.is_forked for start in service.starts(2))
    else:
        until(lambda: is_gone(server.pid or 0), "the server has ended")
        assert probe(service)["pid"] == pid, "its replicas are not its children"
        service.kill()
        service.start()
        assert probe(service)["pid"] == pid, "the next control adopts them"
        os.kill(pid, signal.SIGKILL)
        until(lambda: [r for r in service.ready("probe") if r != replica], "another")
        assert service.starts(2)[-1].is_forked, "from a new server"
    assert service.stop() == 0
    assert service.pids() == [] and service.holder_pids() == []


def test_control_is_killed_and_the_next_one_adopts_server_and_replica(
    serve: Callable[..., Served],
) -> None:
    service = service_of(serve)
    service.start()
    before = (probe(service)["pid"], server_pid(service))
    service.kill()
    service.start()
    assert (probe(service)["pid"], server_pid(service)) == before
    assert service.stop() == 0
    assert service.pids() == [] and service.holder_pids() == []


def test_a_forked_start_that_hangs_is_ended_whole(serve: Callable[..., Served]) -> None:
    service = service_of(serve, 'start_timeout = "1s"\n')
    service.file.write_text(service.file.read_text().replace("sweet", 'x", SLOW = "1'))
    service.start(wait=False)
    until(lambda: service.state.events.exists() and recorded(service, "exit"), "it is ended")
    (first, *_) = recorded(service, "exit")
    assert "SIGKILL" in first["how"] or "SIGTERM" in first["how"] or "code" in first["how"]
    service.end()
    assert service.pids() == []
