"""The holder program by itself: a specification in, one JSON object a line out."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from preroll.backends.holder_program import find_program

TIMEOUT_S = 60.0


class Peer:
    """One connection to a control socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(str(path))
        self._file: IO[str] = self.socket.makefile("r")

    def send(self, text: bytes) -> None:
        self.socket.sendall(text)

    def read(self) -> Any:
        line = self._file.readline()
        assert line.endswith("\n"), f"closed after {line!r}"
        return json.loads(line)

    def is_closed(self) -> bool:
        return self._file.readline() == ""

    def ask(self, op: str, **more: Any) -> Any:
        self.send(json.dumps({"op": op, **more}).encode() + b"\n")
        return self.read()

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class Bench:
    """Starts holders in a directory of their own and ends them after the test."""

    def __init__(self, root: Path, user: int | None = None) -> None:
        self.root = root
        self._user = user
        self._started: list[subprocess.Popen[str]] = []
        self._peers: list[Peer] = []

    def spec(self, *argv: str, **more: Any) -> dict[str, Any]:
        return {
            "version": 1,
            "id": "h",
            "dir": str(self.root),
            "socket": str(self.root / "h.sock"),
            "argv": list(argv),
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            **more,
        }

    def launch(self, spec: Any) -> subprocess.Popen[str]:
        """Starts the program on a specification; returns when it has let go of its stderr."""
        path = self.root / "spec.json"
        path.write_text(spec if isinstance(spec, str) else json.dumps(spec))
        process = subprocess.Popen(
            [self._program(), path],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
        )
        self._started.append(process)
        return process

    def _program(self) -> Path:
        """Another user may not be able to reach the installed program: it gets a copy."""
        if self._user is None:
            return find_program()
        copy = self.root / "preroll-holder"
        if not copy.exists():
            shutil.copy2(find_program(), copy)
            os.chown(self.root, self._user, self._user)
        return copy

    def start(self, *argv: str, **more: Any) -> Peer:
        process = self.launch(self.spec(*argv, **more))
        assert process.stderr is not None
        complaint = process.stderr.read()
        assert complaint == ""
        return self.peer()

    def complaint(self, spec: Any) -> str:
        """What the program says of a specification that it refuses with exit status 2."""
        process = self.launch(spec)
        _, text = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 2
        return text

    def peer(self) -> Peer:
        peer = Peer(self.root / "h.sock")
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        for process in self._started:
            for _ in range(2):  # the second one does not wait for the grace
                with suppress(ProcessLookupError):
                    process.terminate()
            assert process.stderr is not None
            process.stderr.close()
            process.wait(TIMEOUT_S)
