"""The state directory: its paths, its one owner, and files written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preroll.errors import InputError, UnavailableError

KEPT_LOGS = 20


@dataclass(frozen=True, slots=True)
class StateDir:
    """Paths of one application's state; see "Directories" in docs/protocol.md."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "serve.lock"

    @property
    def events(self) -> Path:
        return self.root / "events.sqlite"

    @property
    def tables(self) -> Path:
        return self.root / "tables.json"

    @property
    def status(self) -> Path:
        """What control decided last, for `ps`, `top` and `why`; readable when control is gone."""
        return self.root / "control.json"

    @property
    def held(self) -> Path:
        """Which replica a measurement holds (held.py)."""
        return self.root / "held.json"

    @property
    def holders(self) -> Path:
        return self.root / "holders"

    @property
    def run(self) -> Path:
        return self.root / "run"

    def holder(self, holder_id: str) -> Path:
        return self.holders / holder_id

    def replica_file(self, replica_id: str) -> Path:
        return self.holders / replica_id / "replica.json"

    def socket(self, name: str) -> Path:
        """Path of a socket in the directory that the backend has prepared, short enough for
        sun_path."""
        return Path(os.path.realpath(self.run)) / name

    def prepare(self) -> None:
        """Makes the directories. Raises InputError when that is impossible."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.holders.mkdir(exist_ok=True, mode=0o700)
            probe = self.root / ".writable"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise InputError(
                f"state directory {self.root}: {error.strerror or error}; allowed: a directory"
                " that can be written; give another one with --state DIR"
            ) from error


class Lock:
    """The exclusive lock of a state directory; freed by the kernel when its owner dies."""

    def __init__(self, state: StateDir) -> None:
        """Raises UnavailableError, naming the owner, when another process holds it."""
        self._file = os.open(state.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise UnavailableError(
                f"{state.root} is served by process {owner(state) or 'unknown'} already; one"
                " `preroll serve` per state directory: `preroll stop` ends it, --state DIR gives"
                " another one"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        with contextlib.suppress(OSError):  # a disk that has become read-only
            os.ftruncate(self._file, 0)
        os.close(self._file)


def owner(state: StateDir) -> int | None:
    """Process id of the `preroll serve` that holds the lock now; None when nobody does."""
    try:
        file = os.open(state.lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        with contextlib.suppress(ValueError):
            return int(os.pread(file, 32, 0) or b"0")
        return 0
    else:
        return None
    finally:
        os.close(file)


def forget_old(state: StateDir) -> None:
    """Removes the folders of replicas that ended long ago: `KEPT_LOGS` stay for `preroll logs`."""
    ended = []
    for folder in state.holders.iterdir():
        status = read_json(folder / "status.json") or {"state": "exited"}  # it never began
        if status.get("state") == "exited" and not state.socket(f"{folder.name}.sock").exists():
            ended.append((folder.stat().st_mtime, folder))
    for _, folder in sorted(ended, reverse=True)[KEPT_LOGS:]:
        shutil.rmtree(folder, ignore_errors=True)


def write_json(path: Path, value: Any, *, sync: bool = False) -> None:
    """Writes a file whole or not at all: a reader sees the old or the new one. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("w") as file:
            json.dump(value, file, separators=(",", ":"))
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_json(path: Path) -> Any:
    """The file's value; None when it is missing or cut short."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def default_state(app_name: str) -> Path:
    """$XDG_STATE_HOME/preroll/APP, under ~/.local/state where the variable is not set."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "preroll" / app_name
