"""The event log on real files: durability, order, recovery, foreign files."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preroll import events
from preroll.clock import ManualClock
from preroll.core import Phase, Preparedness, Start, Wait
from preroll.errors import UnavailableError
from preroll.events import EventLog, iter_starts, read


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    log = EventLog(tmp_path / "events.sqlite")
    yield log
    log.close()


def wait_for(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def test_an_appended_event_can_be_read_while_the_log_is_open(log: EventLog) -> None:
    number = log.append("state", stage="chat", replica="chat-1", data={"to": "ready"}).result(10)
    (event,) = read(log.path)
    assert (event.seq, event.kind, event.replica) == (number, "state", "chat-1")
    assert event.data == {"to": "ready"}
    assert event.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_events_are_stamped_on_the_clock_given_or_by_the_caller(tmp_path: Path) -> None:
    clock = ManualClock(monotonic_ns=5_000, wall_s=1_000.0)
    log = EventLog(tmp_path / "e", clock)
    log.append("a")
    log.append("b", t_ns=42)
    clock.jump_wall(-400 * 86400)
    log.append("c").result(10)
    log.close()
    a, b, c = read(log.path)
    assert (a.t_ns, b.t_ns, c.t_ns) == (5_000, 42, 5_000)
    assert c.wall_s == 1_000.0 - 400 * 86400


def test_order_is_kept_from_many_threads(log: EventLog) -> None:
    def append(name: str) -> None:
        for n in range(200):
            log.append("n", stage=name, data={"n": n}, durable=n % 50 == 0)

    threads = [threading.Thread(target=append, args=(f"t{i}",)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.flush()
    for i in range(5):
        mine = [e.data["n"] for e in read(log.path) if e.stage == f"t{i}"]
        assert mine == list(range(200))


def test_reading_filters_by_kind_replica_sequence_and_keeps_the_latest(log: EventLog) -> None:
    for n in range(10):
        log.append("even" if n % 2 == 0 else "odd", replica=f"r{n % 3}", data={"n": n})
    log.flush()
    assert [e.data["n"] for e in read(log.path, kinds=("even",))] == [0, 2, 4, 6, 8]
    assert [e.data["n"] for e in read(log.path, replica="r1", limit=2)] == [4, 7]
    last = list(read(log.path))[-2].seq
    assert [e.data["n"] for e in read(log.path, since=last)] == [9]


def test_starts_come_back_with_phases_that_sum_to_the_total(log: EventLog) -> None:
    phases = (
        Phase(Wait.INIT, "spawned", 0, 400),
        Phase(Wait.LOAD, "loading model", 400, 900),
        Phase(Wait.WARM, "warm-up", 900, 1000),
    )
    start = Start("chat-1-a", "chat", 0, 1000, phases, Preparedness.LOCAL_WEIGHTS)
    data = events.start_data(start)
    log.append("start", stage="chat", replica="chat-1-a", data=data, durable=True).result(10)
    (back,) = iter_starts(log.path)
    assert back == start
    assert sum(p.duration_s for p in back.phases) == pytest.approx(back.total_s)


def test_a_log_that_is_not_there_has_no_events(tmp_path: Path) -> None:
    assert list(read(tmp_path / "none.sqlite")) == []


WRITER = """
import sys
from pathlib import Path
from preroll.events import EventLog
log = EventLog(Path(sys.argv[1]))
for n in range(1_000_000):
    log.append("n", data={"n": n}, durable=True).result(30)
    print(n, flush=True)
"""


def test_a_kill_at_any_instant_loses_no_acknowledged_event(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    total = 0
    for round_ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(3 + 5 * round_)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
        process.stdout.close()
        process.wait(10)
        total += len([line for line in acknowledged if line.endswith("\n")])
        assert len(list(read(path))) >= total
        total = len(list(read(path)))
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_a_file_that_is_no_database_is_kept_aside_and_a_fresh_one_begins(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    path.write_bytes(b"not a database at all" * 500)
    log = EventLog(path)
    assert log.kept_aside is not None
    assert log.kept_aside.name.startswith("events.sqlite.corrupt-")
    assert log.kept_aside.read_bytes().startswith(b"not a database")
    assert log.append("a", durable=True).result(10) == 1
    log.close()


@pytest.mark.parametrize("version", ["0", "99"])
def test_a_file_of_another_version_is_kept_aside(tmp_path: Path, version: str) -> None:
    path = tmp_path / "events.sqlite"
    first = EventLog(path)
    first.append("old").result(10)
    first.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value=? WHERE key='schema_version'", (version,))
    db.close()
    log = EventLog(path)
    log.append("new").result(10)
    log.close()
    assert [e.kind for e in read(path)] == ["new"]
    assert log.kept_aside is not None and f".v{version}-" in log.kept_aside.name
    with sqlite3.connect(log.kept_aside) as db:
        assert db.execute("SELECT kind FROM events").fetchall() == [("old",)]
    db.close()


def test_a_database_without_our_table_is_another_version(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE other (x)")
    db.close()
    log = EventLog(path)
    log.append("new").result(10)
    log.close()
    assert log.kept_aside is not None


def test_a_page_overwritten_while_running_starts_a_fresh_file(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    log = EventLog(path)
    for n in range(300):
        log.append("n", data={"n": n, "pad": "x" * 200})
    log.flush()
    log.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    log = EventLog(path)
    wait_for(lambda: log.flush())
    log.append("after", durable=True).result(10)
    log.close()
    assert log.kept_aside is not None
    assert [e.kind for e in read(path)] == ["after"]


def test_while_the_disk_refuses_events_wait_and_are_written_afterwards(tmp_path: Path) -> None:
    """A file-size limit of the file system stands for a full disk: SQLite sees the same error."""
    script = """
import resource, sys, time
from pathlib import Path
from preroll.events import EventLog, read
from preroll.errors import UnavailableError
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
log = EventLog(path)
log.append("before", durable=True).result(10)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
try:
    log.append("during", durable=True).result(10)
except UnavailableError as error:
    assert "wait in memory" in str(error), error
else:
    raise SystemExit("a refused event was acknowledged")
assert log.problem
log.append("during too")
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
deadline = time.monotonic() + 5
while log.problem and time.monotonic() < deadline:
    time.sleep(0.02)
assert log.problem is None, "not healthy within 5 s of relief"
log.append("after", durable=True).result(10)
log.close()
print([e.kind for e in read(path)])
"""
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "events.sqlite")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.strip() == "['before', 'during', 'during too', 'after']", result.stderr
    assert "are written again" in result.stderr


def test_when_the_disk_never_comes_back_memory_stays_bounded_and_the_loss_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_BACKLOG", 50)
    monkeypatch.setattr(events, "RETRY_S", 0.02)
    folder = tmp_path / "gone"
    log = EventLog(folder / "events.sqlite")
    assert log.problem is not None
    for n in range(200):
        with pytest.raises(UnavailableError):
            log.append("n", data={"n": n}).result(10)
    folder.mkdir()
    wait_for(lambda: log.problem is None)
    log.flush()
    log.close()
    rows = list(read(folder / "events.sqlite"))
    (lost,) = [e for e in rows if e.kind == "events_lost"]
    assert lost.data["count"] + len(rows) - 1 == 200
    assert rows[-2].data["n"] == 199


def test_only_a_durable_event_is_synced_to_the_disk(log: EventLog) -> None:
    """SIGKILL cannot tell the levels apart, a power cut can: what SQLite is told must be right."""
    log.flush()
    said: list[str] = []
    assert log._db is not None
    log._db.set_trace_callback(said.append)
    log.append("a").result(10)
    log.append("b", durable=True).result(10)
    log._db.set_trace_callback(None)
    levels = [s for s in said if s.startswith("PRAGMA synchronous") or s == "COMMIT"]
    assert levels == ["PRAGMA synchronous=NORMAL", "COMMIT", "PRAGMA synchronous=FULL", "COMMIT"]
