"""A real `preroll serve` for tests: its own process, door, holders and engines on a state dir."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from preroll.core import Start
from preroll.errors import PrerollError
from preroll.events import iter_starts
from preroll.serve.statedir import StateDir, owner
from preroll.serve.survey import Survey, end_all, survey

ENGINE = Path(__file__).parent.parent / "engines_for_tests" / "engine.py"
PREROLL = [sys.executable, "-P", "-c", "from preroll.cli.main import main; main()"]
TIMEOUT_S = 60.0
MARK = b"PREROLL_HOLDER_DIR="


def until(
    condition: Callable[[], Any],
    what: str | Callable[[], Any] = "",
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """The first true value of `condition`, polled with a deadline; `what` was waited for."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {timeout_s:g} s: {said or condition}")
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def engine_stage(*options: str, name: str = "chat", **keys: str) -> str:
    """TOML of a stage that runs the test engine; `keys` are further keys as TOML text."""
    words = [sys.executable, "-I", "-S", str(ENGINE), "--listen", "unix:{socket}", *options]
    lines = [f"[stage.{name}]", 'engine = "command"', f"command = {json.dumps(words)}"]
    lines += ['health = "/health"', 'stop_grace = "5s"']
    lines += [f"{key} = {value}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


class Served:
    """One app on one state directory; `start` may be called again after a kill."""

    def __init__(self, folder: Path, toml: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.state = StateDir(folder / "state")
        self.file = folder / "app.toml"
        self.write(toml)
        self.process: subprocess.Popen[str] | None = None
        self.output: list[str] = []

    def write(self, toml: str) -> None:
        # Nobody here learns late that the door drains.
        head = f'[serve]\nlisten = "127.0.0.1:{self.port}"\nlimits = {{ drain_accept = "100ms" }}\n'
        self.file.write_text(head + toml)

    def start(self, *options: str, wait: bool = True, env: dict[str, str] | None = None) -> None:
        words = [*PREROLL, "serve", str(self.file), "--state", str(self.state.root), *options]
        self.output = []
        self.process = subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )
        self._reader = threading.Thread(
            target=self._read, args=(self.process, self.output), daemon=True
        )
        self._reader.start()
        if wait:
            self.wait_said("serving on")

    def _read(self, process: subprocess.Popen[str], output: list[str]) -> None:
        assert process.stderr is not None
        output.extend(line.rstrip("\n") for line in process.stderr)  # each as it comes
        process.stderr.close()

    def wait_said(self, text: str) -> str:
        """Waits for a line that contains `text`."""
        process = self.process
        assert process is not None

        def said() -> str | None:
            ended = process.poll() is not None
            if ended:
                self.wait()
            found = next((line for line in self.output if text in line), None)
            if found is None and ended:
                raise AssertionError("serve ended:\n" + "\n".join(self.output))
            return found

        try:
            return str(until(said, f"{text!r} said"))
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.output)) from None

    # Control ---------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL of control."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM of control; returns its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """The exit status of control, once all that it said is read."""
        assert self.process is not None
        status = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return status

    def command(
        self, *words: str, timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PREROLL, *words], capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def end(self) -> None:
        """Whatever the test left: nothing of it survives."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        detached = owner(self.state)
        if detached:
            with suppress(ProcessLookupError):  # it may be ending by itself
                os.kill(detached, signal.SIGKILL)
        if self.state.holders.is_dir():
            with suppress(PrerollError):
                asyncio.run(end_all(self.state, 0.0, 0.5))
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def starts(self, count: int) -> list[Start]:
        """Waits until so many starts are in the log: they are written after the fact."""
        return list(
            until(
                lambda: len(found := list(iter_starts(self.state.events))) >= count and found,
                f"{count} starts in the log",
            )
        )

    # What runs -------------------------------------------------------------------------------

    def survey(self) -> Survey:
        return asyncio.run(survey(self.state))

    def ready(self, stage: str = "chat") -> list[str]:
        """Ids of ready replicas."""
        if not self.state.holders.is_dir():
            return []
        return [
            one.status.id
            for one in self.survey().replicas
            if one.state == "ready" and one.record and one.record.stage == stage
        ]

    def pid_of(self, replica: str) -> int:
        return next(s.status.pid or 0 for s in self.survey().replicas if s.status.id == replica)

    def pids(self) -> list[int]:
        """Every process started under a holder of this state directory."""
        mark = MARK + str(self.state.holders.absolute()).encode()
        return [pid for pid, environ in environments() if mark in environ]

    def holder_pids(self) -> list[int]:
        root = str(self.state.root.absolute()).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                words = read(entry / "cmdline").split(b"\0")
                if words and words[0].endswith(b"preroll-holder") and root in b" ".join(words):
                    found.append(int(entry.name))
        return found

    # Requests --------------------------------------------------------------------------------

    def get(self, path: str, timeout_s: float = TIMEOUT_S) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def chat(
        self, headers: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S, **body: Any
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        fields = {"content-type": "application/json", **(headers or {})}
        try:
            document = json.dumps({"messages": [], **body})
            connection.request("POST", "/v1/chat/completions", document, fields)
            response = connection.getresponse()
            names = {k.lower(): v for k, v in response.getheaders()}
            return response.status, response.read(), names
        finally:
            connection.close()

    @contextmanager
    def stream(self, **body: Any) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        document = json.dumps({"messages": [], "stream": True, **body})
        connection.request(
            "POST", "/v1/chat/completions", document, {"content-type": "application/json"}
        )
        response = connection.getresponse()
        try:
            yield response
        finally:
            connection.close()


def tokens(data: bytes) -> list[str]:
    """The contents of an SSE body, in order; the last is `[DONE]` for a stream that is whole."""
    found = []
    for event in re.findall(rb"data: (.*)", data):
        if event == b"[DONE]":
            found.append("[DONE]")
        else:
            choices = json.loads(event).get("choices")
            found += [choices[0]["delta"]["content"]] if choices else ["error"]
    return found


def environments() -> Iterator[tuple[int, bytes]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            yield int(entry.name), read(entry / "environ")


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
