"""A door process on ephemeral ports, its tables, its admin socket, and origins that end with it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from door_origin import Answer, Origin, ok
from door_wire import Fields, Message, Wire, dial, request_bytes, wait_until

DOOR = os.environ.get("PREROLL_DOOR") or str(Path(sys.executable).parent / "preroll-door")

# Passes listening sockets from descriptor 3 on, with the process id that the convention asks for.
LAUNCH = """
import os, sys
fds = [int(fd) for fd in sys.argv[1].split(",")]
high = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
    os.close(fd)
env = dict(os.environ, LISTEN_FDS=str(len(fds)), LISTEN_PID=str(os.getpid()),
           LISTEN_FDNAMES=sys.argv[2])
os.execve(sys.argv[3], sys.argv[3:], env)
"""

Json = dict[str, Any]
_ids = itertools.count()


def replica(origin: Origin | str, slots: int = 8, **more: Any) -> Json:
    address = origin if isinstance(origin, str) else origin.address
    name = more.pop("id", None) or f"r{next(_ids)}"
    return {"id": name, "address": address, "slots": slots, "state": "ready", **more}


def stage(*replicas: Json, models: tuple[str, ...] = (), **more: Any) -> Json:
    return {"models": list(models), "replicas": list(replicas), **more}


class Bench:
    """One test's door and origins."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="d-"))
        self.origins: list[Origin] = []
        self.doors: list[Door] = []

    def origin(self, answer: Answer = ok, *, is_tcp: bool = False) -> Origin:
        path = None if is_tcp else self.root / f"o{len(self.origins)}.http"
        origin = Origin(answer, path)
        self.origins.append(origin)
        return origin

    def door(self, stages: dict[str, Json], *flags: str, **more: Any) -> Door:
        """A door that answers; `more` are top-level tables such as `routes` and `limits`."""
        door = Door(self.root / f"door{len(self.doors)}", flags)
        self.doors.append(door)
        door.write_tables(stages, **more)
        door.start()
        return door

    def close(self) -> None:
        for door in self.doors:
            door.close()
        for origin in self.origins:
            origin.stop()
        shutil.rmtree(self.root, ignore_errors=True)


class Door:
    def __init__(self, root: Path, flags: tuple[str, ...] = ()) -> None:
        root.mkdir(mode=0o700)
        self.root = root
        self.flags = flags
        self.version = itertools.count(1)
        self.tables: Json = {}
        self.public = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port: int = self.public.getsockname()[1]
        self.admin_path = str(root / "admin.sock")
        self.internal_path = str(root / "internal.sock")
        self.log = root / "door.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.wires: list[Wire] = []

    def write_tables(self, stages: dict[str, Json], **more: Any) -> bytes:
        self.tables = {"version": next(self.version), "stages": stages, **more}
        data = json.dumps(self.tables).encode()
        (self.root / "tables.json").write_bytes(data)
        return data

    def start(self, listener: socket.socket | None = None) -> None:
        fd = (listener or self.public).fileno()
        argv = [sys.executable, "-I", "-S", "-c", LAUNCH, str(fd), "public", DOOR]
        argv += ["--tables", str(self.root / "tables.json"), "--admin", f"unix:{self.admin_path}"]
        argv += ["--internal", f"unix:{self.internal_path}", *self.flags]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, pass_fds=(fd,), stdout=log, stderr=log)
        wait_until(self.is_healthy, "the door answers")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def is_healthy(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError, Exception):
            return bool(self.admin("GET", "/healthz").status == 200)
        return False

    def close(self) -> None:
        for wire in self.wires:
            wire.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)
        self.public.close()

    # Clients

    def connect(self) -> Wire:
        wire = dial(("127.0.0.1", self.port))
        self.wires.append(wire)
        return wire

    def ask(
        self,
        target: str,
        body: bytes | str | None = None,
        fields: Fields = (),
        method: str | None = None,
    ) -> Wire:
        """Sends a request on a connection of its own."""
        wire = self.connect()
        method = method or ("GET" if body is None else "POST")
        wire.send(request_bytes(method, target, fields, body))
        return wire

    def get(
        self,
        target: str,
        body: bytes | str | None = None,
        fields: Fields = (),
        method: str | None = None,
    ) -> Message:
        """Asks and reads the whole answer."""
        wire = self.ask(target, body, fields, method)
        try:
            return wire.response(method or "GET")
        finally:
            wire.close()

    def chat(self, model: str = "m", fields: Fields = (), **more: Any) -> Wire:
        body = json.dumps({"model": model, "messages": [], **more})
        kind = ("Content-Type", "application/json")
        return self.ask("/v1/chat/completions", body, [kind, *fields])

    # Admin

    def admin(self, method: str, target: str, body: bytes | None = None) -> Message:
        wire = dial(self.admin_path)
        try:
            wire.send(request_bytes(method, target, (), body))
            return wire.response(method)
        finally:
            wire.close()

    def put(self, stages: dict[str, Json], **more: Any) -> None:
        answer = self.admin("PUT", "/tables", self.write_tables(stages, **more))
        assert answer.status == 200, answer.body

    def state(self, name: str = "chat") -> Json:
        found = json.loads(self.admin("GET", "/state").body)
        return found.get("stages", found)[name]  # type: ignore[no-any-return]

    def wait_for_state(self, name: str = "chat", **expected: int) -> None:
        def is_so() -> bool:
            state = self.state(name)
            return all(state[key] == value for key, value in expected.items())

        wait_until(is_so, f"{name} has {expected}")

    def follow_events(self, since: int = 0) -> list[Json]:
        """Keeps `/events` in a growing list."""
        wire = dial(self.admin_path)
        wire.sock.settimeout(600)
        self.wires.append(wire)
        wire.send(request_bytes("GET", f"/events?since={since}"))
        assert wire.head().status == 200
        events: list[Json] = []

        def read() -> None:
            held = b""
            with contextlib.suppress(Exception):
                for part in wire.chunks():
                    *lines, held = (held + part).split(b"\n")
                    events.extend(json.loads(line) for line in lines if line.strip())

        threading.Thread(target=read, daemon=True).start()
        return events

    def rss_kb(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1])

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
