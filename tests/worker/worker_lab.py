"""A real worker process for tests, on a Unix socket of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TIMEOUT_S = 30.0


def until(condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    """The first true value of `condition`, polled with a deadline."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.005)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class WorkerProcess:
    """`python -m preroll.worker` on a stage whose source is `code`."""

    def __init__(
        self,
        folder: Path,
        code: str,
        *,
        settings: dict[str, Any] | None = None,
        before_exec: Callable[[], None] | None = None,
        python: str = sys.executable,
    ) -> None:
        (folder / "mine.py").write_text("from preroll import *\n" + code)
        self.socket = str(folder / "s")
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [python, "-m", "preroll.worker", "mine:Mine", "--uds", self.socket],
            cwd=folder,
            env={
                **os.environ,
                "PREROLL_WORKER": json.dumps({"max_concurrency": 8, **(settings or {})}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=before_exec,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))
        self.process.stdout.close()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_said(self, text: str) -> None:
        until(lambda: text in self.output, f"{text!r} said; it said:\n{self.output}")

    def wait_ready(self) -> None:
        until(
            lambda: "phase ready" in self.output or self.process.poll() is not None,
            "ready",
        )
        assert self.process.poll() is None, self.output

    def wait(self) -> int:
        """The exit status, once all output is read."""
        status = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return status

    def request(self, body: Any = b"", path: str = "/", method: str = "POST") -> tuple[int, bytes]:
        connection = UnixConnection(self.socket)
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            kind = "application/octet-stream" if data is body else "application/json"
            connection.request(method, path, data, {"content-type": kind})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        _, text = self.request(path="/_preroll/metrics", method="GET")
        for line in text.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no series {name}")

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.wait()


@contextmanager
def worker(folder: Path, code: str, **options: Any) -> Iterator[WorkerProcess]:
    made = WorkerProcess(folder, code, **options)
    try:
        made.wait_ready()
        yield made
    finally:
        made.end()
