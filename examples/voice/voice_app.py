"""The example's app, run as a user would: by the `preroll` command, on a state directory."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
APP = HERE / "app.toml"
STAGES = ("llm", "stt", "tts", "voice")
READY_TIMEOUT_S = 120.0


class VoiceApp:
    """One `preroll serve`, on a free port of its own. A context manager."""

    def __init__(self, state: Path, text: str | None = None, port: int | None = None) -> None:
        """`text`: another app file, made in the state's parent."""
        self.state = state
        self.port = port or free_port()
        self._file = state.with_suffix(".toml")
        state.parent.mkdir(parents=True, exist_ok=True)
        source = text if text is not None else APP.read_text()
        source = re.sub(r'body = "warm\.json"', f'body = "{HERE / "warm.json"}"', source)
        source = source.replace("../../", f"{HERE.parents[1]}/")
        self._file.write_text(re.sub(r"127\.0\.0\.1:8322", f"127.0.0.1:{self.port}", source))
        self.log = state.with_suffix(".log")
        self._control: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start(self) -> float:
        """Starts the app and waits until every stage is ready; the seconds that it took."""
        began_s = time.perf_counter()
        command = [sys.executable, "-m", "preroll", "serve", str(self._file)]
        with self.log.open("ab") as log:
            self._control = subprocess.Popen(
                [*command, "--state", str(self.state)], stdout=log, stderr=log, stdin=-3
            )
        # One after the other, and not too often: who asks takes part of what is measured.
        for stage in STAGES:
            while self.status(f"/readyz/{stage}") != 200:
                if self._control.poll() is not None:
                    raise RuntimeError(f"preroll serve ended: {self.log.read_text()[-2000:]}")
                if time.perf_counter() - began_s > READY_TIMEOUT_S:
                    raise RuntimeError(f"{stage} is not ready; see {self.log}")
                time.sleep(0.01)
        return time.perf_counter() - began_s

    def status(self, path: str) -> int:
        """The status of a GET; 0 when nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5.0)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def ps(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "preroll", "ps", "--state", str(self.state), "--json"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def stop(self) -> None:
        command = [sys.executable, "-m", "preroll", "stop", "--state", str(self.state)]
        subprocess.run(command, capture_output=True, timeout=60, check=False)
        if self._control is not None:
            self._control.wait(timeout=60)

    def __enter__(self) -> VoiceApp:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
