"""`preroll serve --detach`: the service in the background, the terminal back when it is ready."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from preroll.serve.statedir import StateDir, read_json

LOG = "serve.log"
POLL_S = 0.05
RUN = "from preroll.cli.main import main; main()"


def serve_detached(state: StateDir, arguments: Sequence[str]) -> int:
    """Starts `preroll serve` in a session of its own; its output goes to STATE/serve.log.

    Returns 0 when everything is ready, else the status of the service that did not start.
    """
    state.prepare()
    own, flags = list(arguments), list[str]()
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") :]
    log = state.root / LOG
    words = [sys.executable, "-P", "-c", RUN, "serve", *own]
    words += ["--state", str(state.root.absolute()), *flags]
    with log.open("wb") as file:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    status = wait_ready(process, state)
    sys.stderr.write(log.read_text(errors="replace"))
    if status is None:
        process.returncode = 0  # it lives on; nobody waits for it here
        return 0
    return status


def wait_ready(process: subprocess.Popen[bytes], state: StateDir) -> int | None:
    """None when the service is ready, its exit status when it ended before that."""
    while True:
        status = process.poll()
        if status is not None:
            return status or 1
        control = read_json(Path(state.status)) or {}
        if control.get("pid") == process.pid and control.get("ready"):
            return None
        time.sleep(POLL_S)
