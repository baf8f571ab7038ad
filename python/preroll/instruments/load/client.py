"""The load client's process: a specification in, records out as they come."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from preroll.errors import InputError, UnavailableError

Json = dict[str, Any]
PROGRAM = "preroll-load"


def program() -> str:
    """Path of the load client. Raises UnavailableError when it is not installed."""
    beside = Path(sys.executable).parent / PROGRAM
    found = str(beside) if beside.exists() else shutil.which(PROGRAM)
    if found is None:
        raise UnavailableError(f"{PROGRAM} is not installed: pip install preroll-bin")
    return found


class Client:
    """One run of the load client; iterate to get its lines, send commands when it has control.

    Raises InputError when the client refuses the specification.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [program(), "run", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._write(spec)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Json]:
        """Lines until the end; an interrupted client still says its summary."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)
        self._check()

    def level(self, connections: int, tag: str) -> None:
        self._write({"op": "level", "connections": connections, "tag": tag})

    def stop(self) -> None:
        self._write({"op": "stop"})

    def abort(self) -> None:
        """Ends the run now; the summary still follows."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._check()

    def _check(self) -> None:
        status = self._process.wait()
        if status:
            assert self._process.stderr is not None
            said = self._process.stderr.read().strip() or f"exit status {status}"
            raise InputError(f"the load client refused: {said}")


class Mock:
    """The mock backend as a process; `address` is where it listens (`tcp:HOST:PORT`)."""

    def __init__(self, **options: object) -> None:
        words = [w for k, v in options.items() for w in (f"--{k.replace('_', '-')}", _word(v))]
        self._process = subprocess.Popen(
            [program(), "mock", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            said = self._process.stderr.read().strip()
            self.close()
            raise InputError(f"the mock refused: {said}")
        self.address: str = json.loads(line)["listening"][0]
        self.url = "http://" + self.address.removeprefix("tcp:")

    def __enter__(self) -> Mock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
