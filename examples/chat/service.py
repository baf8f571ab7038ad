"""The service under demonstration, handled as a user would: by the `preroll` command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from client import connect

HERE = Path(__file__).parent
APP = HERE / "app.toml"
READY_TIMEOUT_S = 300.0


class DemoError(Exception):
    """A step of the demo did not do what it shows."""


class Service:
    """One `preroll serve` on a state directory of its own."""

    def __init__(self, state: Path, url: str) -> None:
        self.state, self.url = state, url
        self.log = state.with_suffix(".log")
        self.control: subprocess.Popen[bytes] | None = None

    def preroll(self, *arguments: str) -> str:
        """Runs a `preroll` command and returns what it printed."""
        command = [sys.executable, "-m", "preroll", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise DemoError(f"preroll {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "preroll", "serve", str(APP), "--state", str(self.state)]
        with self.log.open("ab") as log:
            self.control = subprocess.Popen(command, stdout=log, stderr=log)

    def answers(self, path: str) -> bool:
        connection = connect(self.url, 5.0)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def wait_ready(self) -> float:
        """Waits until the chat stage takes requests; the seconds that it took."""
        begun = time.perf_counter()
        while not self.answers("/readyz/chat"):
            if self.control is not None and self.control.poll() is not None:
                raise DemoError(f"preroll serve ended: {self.log.read_text()[-2000:]}")
            if time.perf_counter() - begun > READY_TIMEOUT_S:
                raise DemoError(f"not ready after {READY_TIMEOUT_S:.0f} s; see {self.log}")
            time.sleep(0.02)
        return time.perf_counter() - begun

    def kill_control(self) -> None:
        """SIGKILL: no handler, no farewell."""
        assert self.control is not None
        self.control.send_signal(signal.SIGKILL)
        self.control.wait()

    def stop(self) -> None:
        self.preroll("stop", "--state", str(self.state))
        if self.control is not None:
            self.control.wait(timeout=60)

    def ps(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(
            self.preroll("ps", "--state", str(self.state), "--json")
        )
        return document

    def replicas(self, stage: str) -> list[dict[str, Any]]:
        """The replicas of a stage that have not ended."""
        ended = ("stopped", "failed")
        live = (r for r in self.ps()["replicas"] if r["state"] not in ended)
        return [replica for replica in live if replica["stage"] == stage]
