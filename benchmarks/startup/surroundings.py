"""What the planted worker finds around it: cold files, a held lock, a late server, a burner."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from preroll.instruments.ablation import pages

AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
WORKER = Path(__file__).resolve().parent / "planted" / "worker.py"
LOCK_S = 0.4
ANSWER_S = 0.35
BURN_S = 1.2
POLL_S = 0.005
BURNER = (
    "import os, sys, time\n"
    "os.sched_setaffinity(0, {int(sys.argv[2])})\n"
    "with open(sys.argv[1]) as file:\n"
    "    file.read(2)\n"
    "end = time.thread_time() + float(sys.argv[3])\n"
    "while time.thread_time() < end:\n"
    "    pass\n"
)


def python_for_anyone() -> str | None:
    """A Python that a user without rights can start; this one, unless it lies in a home folder."""
    for python in (sys.executable, "/usr/bin/python3"):
        words = ["env", "-C", "/", str(Path(python).resolve()), "-c", ""]
        found = subprocess.run([*AS_NOBODY, *words], capture_output=True, check=False)
        if found.returncode == 0 and is_open(Path(python).resolve()):
            return python
    return None


def is_open(path: Path) -> bool:
    """Whether every folder above the path may be passed by anyone."""
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with the worker's files, for anyone to use; sizes in bytes."""

    folder: Path
    cold_bytes: int
    mapped_bytes: int

    @property
    def files(self) -> tuple[Path, Path]:
        return self.folder / "cold.bin", self.folder / "mapped.bin"

    def make(self) -> None:
        self.folder.chmod(0o777)
        for path, size in zip(self.files, (self.cold_bytes, self.mapped_bytes), strict=True):
            if not path.exists() or path.stat().st_size != size:
                with path.open("wb") as file:
                    left = size
                    while left > 0:
                        file.write(os.urandom(min(left, 1 << 24)))
                        left -= 1 << 24
        lock = self.folder / "lock"
        lock.touch()
        lock.chmod(0o666)


@dataclass
class Surroundings:
    """Of one run. `env`: what the worker must be told."""

    place: Place
    name: str
    env: dict[str, str] = field(default_factory=dict)

    @property
    def truth(self) -> Path:
        return self.place.folder / f"{self.name}.truth"


@contextlib.contextmanager
def around(place: Place, name: str, only: str = "") -> Iterator[Surroundings]:
    """Everything is ready and the files are cold; afterwards all of it is gone again."""
    found = Surroundings(place, name)
    found.truth.unlink(missing_ok=True)
    fifo = place.folder / f"{name}.fifo"
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    cpu = max(os.sched_getaffinity(0))
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(ended.set)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = server.getsockname()[1]
        _in_background(stack, _answer_late, server, ended)
        lock = stack.enter_context((place.folder / "lock").open())
        fcntl.flock(lock, fcntl.LOCK_EX)
        _in_background(stack, _release_late, lock, ended)
        words = [sys.executable, "-I", "-S", "-c", BURNER, str(fifo), str(cpu), str(BURN_S)]
        burner = subprocess.Popen(words)
        stack.callback(_end, burner)
        stack.callback(server.close)
        found.env = {
            "PLANTED_TRUTH": str(found.truth),
            "PLANTED_COLD": str(place.files[0]),
            "PLANTED_MAPPED": str(place.files[1]),
            "PLANTED_LOCK": str(place.folder / "lock"),
            "PLANTED_SERVER": str(port),
            "PLANTED_BURN": str(fifo),
            "PLANTED_CPU": str(cpu),
            "PLANTED_ONLY": only,
        }
        pages.drop(map(str, place.files))
        yield found
    fifo.unlink(missing_ok=True)


def _in_background(stack: contextlib.ExitStack, work: object, *arguments: object) -> None:
    thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
    thread.start()
    stack.callback(thread.join, 5.0)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _answer_late(server: socket.socket, ended: threading.Event) -> None:
    server.settimeout(0.2)
    while not ended.is_set():
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                ended.wait(ANSWER_S)
                connection.send(b"x")


def _release_late(lock: object, ended: threading.Event) -> None:
    """Holds the lock until somebody has waited for it for a while (/proc/locks marks waiters)."""
    inode = f":{os.fstat(lock.fileno()).st_ino} "  # type: ignore[attr-defined]
    while not ended.is_set():
        lines = Path("/proc/locks").read_text().splitlines()
        if any("->" in line and inode in line for line in lines):
            time.sleep(LOCK_S)
            fcntl.flock(lock, fcntl.LOCK_UN)  # type: ignore[call-overload]
            return
        time.sleep(POLL_S)
