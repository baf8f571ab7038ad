"""The event log: every state and decision, stamped, in SQLite.

One thread writes; the callers only queue. An event that something is decided on is appended with
`durable=True` and its future is awaited: it resolves after a commit with `synchronous=FULL`, which
survives a power cut (a commit with NORMAL was measured to survive a kill but not a power cut).
When the disk refuses, events wait in memory, the log says so in `problem`, and it recovers alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preroll.clock import Clock, SystemClock, boot_id
from preroll.core import Gap, Phase, Preparedness, Start, Wait
from preroll.errors import UnavailableError

SCHEMA_VERSION = 1
MAX_ROWS = 500_000
"""Older events are pruned at opening: about 100 MB of history."""
MAX_BACKLOG = 10_000
"""Events that wait in memory while the disk refuses; older ones are then counted as lost."""
MAX_BATCH = 500
RETRY_S = 0.5

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  boot_id TEXT NOT NULL, t_ns INTEGER NOT NULL, wall_s REAL NOT NULL,
  kind TEXT NOT NULL, stage TEXT, replica TEXT, data TEXT NOT NULL);
CREATE INDEX events_by_kind ON events (kind, seq);
CREATE INDEX events_by_replica ON events (replica, seq);
"""
_INSERT = (
    "INSERT INTO events (boot_id, t_ns, wall_s, kind, stage, replica, data)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)

_logger = logging.getLogger("preroll.events")


@dataclass(frozen=True, slots=True)
class Event:
    """One row: `t_ns` is CLOCK_MONOTONIC of boot `boot_id`, `wall_s` seconds since the epoch."""

    seq: int
    boot_id: str
    t_ns: int
    wall_s: float
    kind: str
    stage: str | None
    replica: str | None
    data: Mapping[str, Any]


@dataclass(slots=True)
class _Pending:
    row: tuple[str, int, float, str, str | None, str | None, str]
    durable: bool
    future: Future[int]


class EventLog:
    """The writer's end of a log file; one per state directory (the caller holds its lock)."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self.problem: str | None = None
        self.kept_aside: Path | None = None
        self._clock = clock or SystemClock()
        self._queue: queue.Queue[_Pending | None] = queue.Queue(MAX_BACKLOG)
        self._backlog: list[_Pending] = []
        self._lost = 0
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._closing = threading.Event()
        self._try_open()
        self._thread = threading.Thread(target=self._run, name="preroll-events", daemon=True)
        self._thread.start()

    def append(
        self,
        kind: str,
        *,
        stage: str | None = None,
        replica: str | None = None,
        data: Mapping[str, Any] | None = None,
        t_ns: int | None = None,
        durable: bool = False,
    ) -> Future[int]:
        """Queues one event and returns at once; the future gives its `seq` after the commit.

        The future fails with UnavailableError while the disk refuses; the event itself is then
        kept in memory and written when the disk recovers. `t_ns`: a stamp taken elsewhere on this
        boot's monotonic clock, for instance by a holder.
        """
        stamp = self._clock.monotonic_ns() if t_ns is None else t_ns
        text = json.dumps(dict(data or {}), separators=(",", ":"), default=str)
        row = (boot_id(), stamp, self._clock.wall_s(), kind, stage, replica, text)
        pending = _Pending(row, durable, Future())
        try:
            self._queue.put_nowait(pending)
        except queue.Full:
            with self._lock:
                self._lost += 1
            pending.future.set_exception(UnavailableError(f"{self.path}: event queue full"))
        return pending.future

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Waits until everything appended so far is committed; False when it could not be."""
        try:
            self.append("flush", durable=True).result(timeout_s)
        except (UnavailableError, TimeoutError):
            return False
        return True

    def close(self) -> None:
        """Writes what is queued if the disk allows it, and ends the thread."""
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=5)
        self._thread.join(timeout=10)

    # The writer thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            batch, ended = self._take()
            if batch:
                self._write(batch)
            if ended:
                break
        if self._backlog:
            self._retry_backlog()
        if self._db is not None:
            self._db.close()

    def _take(self) -> tuple[list[_Pending], bool]:
        """The next batch, blocking; while events are held back it wakes to try again."""
        batch: list[_Pending] = []
        try:
            item = self._queue.get(timeout=RETRY_S if self._backlog else None)
            while item is not None:
                batch.append(item)
                if len(batch) == MAX_BATCH:
                    return batch, False
                item = self._queue.get_nowait()
        except queue.Empty:
            if not batch and self._backlog:
                self._retry_backlog()
            return batch, self._closing.is_set() and not batch
        return batch, True

    def _retry_backlog(self) -> None:
        backlog, self._backlog = self._backlog, []
        self._write(backlog)

    def _write(self, batch: list[_Pending]) -> None:
        if self._backlog:
            batch, self._backlog = self._backlog + batch, []
        try:
            self._commit(batch)
        except (sqlite3.Error, OSError) as error:
            self._hold_back(batch, error)
        else:
            self._recovered()

    def _commit(self, batch: list[_Pending]) -> None:
        if self._db is None:
            self._open()
        db = self._db
        assert db is not None
        level = "FULL" if any(p.durable for p in batch) else "NORMAL"
        db.execute(f"PRAGMA synchronous={level}")
        db.execute("BEGIN IMMEDIATE")
        try:
            numbers = [db.execute(_INSERT, p.row).lastrowid for p in batch if p.row[3] != "flush"]
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        numbers.reverse()
        for pending in batch:
            number = 0 if pending.row[3] == "flush" else numbers.pop()
            if not pending.future.done():
                pending.future.set_result(number or 0)

    def _hold_back(self, batch: list[_Pending], error: Exception) -> None:
        message = f"{self.path}: cannot write events: {error}; they wait in memory"
        if self.problem is None:
            _logger.warning("%s", message)
        self.problem = message
        if _is_corrupt(error):
            self._set_aside("corrupt")
        elif self._db is not None:
            self._db.close()
            self._db = None
        for pending in batch:
            if not pending.future.done():
                pending.future.set_exception(UnavailableError(message))
        kept = [p for p in batch if p.row[3] != "flush"][-MAX_BACKLOG:]
        with self._lock:
            self._lost += sum(p.row[3] != "flush" for p in batch) - len(kept)
        self._backlog = kept

    def _recovered(self) -> None:
        if self.problem is not None:
            _logger.warning("%s: events are written again", self.path)
        self.problem = None
        with self._lock:
            lost, self._lost = self._lost, 0
        if lost:
            self.append("events_lost", data={"count": lost}, durable=True)

    # Opening ---------------------------------------------------------------------------------

    def _try_open(self) -> None:
        try:
            self._open()
        except (sqlite3.Error, OSError) as error:
            self._hold_back([], error)

    def _open(self) -> None:
        version = _version(self.path)
        if version not in (None, SCHEMA_VERSION):
            self._set_aside(version if isinstance(version, str) else f"v{version}")
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
                db.executescript(
                    f"BEGIN;{_SCHEMA}INSERT INTO meta VALUES"
                    f" ('schema_version', '{SCHEMA_VERSION}');COMMIT;"
                )
            db.execute(
                "DELETE FROM events WHERE seq <= (SELECT max(seq) FROM events) - ?", (MAX_ROWS,)
            )
        except BaseException:
            db.close()
            raise
        self._db = db

    def _set_aside(self, why: str) -> None:
        """Keeps an unreadable or foreign file under another name, so that a fresh one can start."""
        if self._db is not None:
            self._db.close()
            self._db = None
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._clock.wall_s()))
        target = self.path.with_name(f"{self.path.name}.{why}-{stamp}-{time.monotonic_ns()}")
        for suffix in ("", "-wal", "-shm"):
            source = self.path.with_name(self.path.name + suffix)
            if source.exists():
                source.rename(target.with_name(target.name + suffix))
        self.kept_aside = target
        _logger.warning(
            "%s is %s, this version writes schema %d: kept aside as %s, a fresh log begins",
            self.path, why, SCHEMA_VERSION, target.name,
        )  # fmt: skip


def _is_corrupt(error: Exception) -> bool:
    # OperationalError (full, locked, read-only, I/O) is a subclass that may pass by itself.
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, (sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.ProgrammingError)
    )


def _version(path: Path) -> int | str | None:
    """Schema version of a file: None when there is none yet, a word when it cannot be read."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=5.0)) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
                has_tables = db.execute("SELECT 1 FROM sqlite_master").fetchone()
                return 0 if has_tables else None
            if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                return "corrupt"
            row = db.execute("SELECT value FROM meta WHERE key='schema_version'").fetchone()
            return int(row[0]) if row else 0
    except sqlite3.DatabaseError as error:
        if _is_corrupt(error):
            return "corrupt"
        raise


def read(
    path: Path,
    *,
    kinds: Iterable[str] | None = None,
    replica: str | None = None,
    since: int = 0,
    limit: int | None = None,
) -> Iterator[Event]:
    """Events with `seq` > `since`, oldest first; with `limit` the latest that many.

    Works beside a running writer. Raises UnavailableError when the file cannot be read.
    """
    if not path.exists():
        return
    where, values = ["seq > ?"], [since]  # type: tuple[list[str], list[Any]]
    if kinds is not None:
        names = tuple(kinds)
        where.append(f"kind IN ({','.join('?' * len(names))})")
        values += names
    if replica is not None:
        where.append("replica = ?")
        values.append(replica)
    columns = "seq, boot_id, t_ns, wall_s, kind, stage, replica, data"
    query = f"SELECT {columns} FROM events WHERE {' AND '.join(where)} ORDER BY seq"
    if limit is not None:
        query = f"SELECT * FROM ({query} DESC LIMIT {int(limit)}) ORDER BY seq"
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=5.0)) as db:
            db.execute("PRAGMA query_only=ON")
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name='events'").fetchone():
                return  # a log that is just being made
            for seq, boot, t_ns, wall_s, kind, stage, who, data in db.execute(query, values):
                yield Event(seq, boot, t_ns, wall_s, kind, stage, who, json.loads(data))
    except sqlite3.Error as error:
        raise UnavailableError(f"{path}: cannot read the event log: {error}") from error


def start_data(start: Start) -> dict[str, Any]:
    """A start as the data of a `start` event."""
    phases = [[p.wait, p.label, p.start_ns, p.end_ns] for p in start.phases]
    return {
        "spawned_ns": start.spawned_ns,
        "ready_ns": start.ready_ns,
        "preparedness": start.preparedness,
        "phases": phases,
        "forked": start.is_forked,
        "gap": start.gap and [start.gap.start_ns, start.gap.end_ns, start.gap.after],
    }


def iter_starts(path: Path) -> Iterator[Start]:
    """The starts of a log, oldest first; each one's phases are contiguous and sum to its total."""
    for event in read(path, kinds=("start",)):
        data = event.data
        phases = tuple(Phase(Wait(w), label, s, e) for w, label, s, e in data["phases"])
        yield Start(
            replica=event.replica or "",
            stage=event.stage or "",
            spawned_ns=data["spawned_ns"],
            ready_ns=data["ready_ns"],
            phases=phases,
            preparedness=Preparedness(data["preparedness"]),
            gap=Gap(*data["gap"]) if data.get("gap") else None,
            is_forked=data.get("forked", False),
        )
