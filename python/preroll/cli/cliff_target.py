"""What `preroll cliff` overloads: a URL, or one replica of a stage that is being served."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from preroll import measurements
from preroll.cli.load_inputs import get
from preroll.cli.place import state_of
from preroll.config import App, load_app
from preroll.errors import InputError, PrerollError, RefusedError
from preroll.fingerprints import DigestCache, cache_path, fingerprint
from preroll.instruments.cliff.report import measurement
from preroll.instruments.cliff.search import Cliff
from preroll.instruments.load.requests import Server, parse_url

WAITING = re.compile(rb"^(?:vllm:num_requests_waiting|llamacpp:requests_deferred)[^ ]* (\S+)", re.M)


@dataclass(frozen=True, slots=True)
class Found:
    """A target. With an app and a stage, what is found is kept beside the app file."""

    server: Server
    name: str
    notes: tuple[str, ...] = ()
    app: App | None = None
    stage: str = ""

    def keep(self, cliff: Cliff, now: datetime) -> list[str]:
        """Writes the limit beside the app file; says where, or why it was not written."""
        if self.app is None or self.app.path is None:
            return []
        stage = self.app.stages[self.stage]
        try:
            mark = fingerprint(stage, self.app.directory, DigestCache(cache_path()))
            entry = measurement(cliff, self.stage, mark, now)
        except RefusedError as error:
            return [str(error)]
        path = measurements.measured_path(self.app.path)
        measurements.write(path, measurements.put(measurements.read(path), entry))
        return [f"written to {path}"]


def find(target: str, stage: str | None, state: Path | None = None) -> Found:
    """The server behind a target. Raises InputError when there is none."""
    if not target.endswith(".toml"):
        if stage is not None:
            raise InputError(f"'{target}' is no app file (.toml): a STAGE goes with one only")
        return Found(parse_url(target), target)
    app = load_app(Path(target))
    if stage is None and len(app.stages) == 1:
        stage = next(iter(app.stages))
    if stage is None or stage not in app.stages:
        raise InputError(f"STAGE '{stage}'; allowed: {', '.join(app.stages)}")
    replica, address = _replica(target, stage, state)
    note = f"replica {replica} at {address}, past the door; other traffic to it counted as load"
    server = parse_url(address if address.startswith("unix:") else f"http://{address[4:]}")
    return Found(server, f"stage {stage} of {target}", (note,), app, stage)


def _replica(target: str, stage: str, state: Path | None) -> tuple[str, str]:
    path = state_of(target, state).tables
    try:
        replicas = json.loads(path.read_text())["stages"][stage]["replicas"]
    except (OSError, ValueError, KeyError):
        replicas = []
    ready = [r for r in replicas if r["state"] == "ready"]
    if not ready:
        raise InputError(
            f"stage {stage} of {target} has no ready replica; first: preroll serve {target}"
        )
    # The last one: with several, the door sends it the least.
    return ready[-1]["id"], ready[-1]["address"]


def queue_depth(server: Server, level: int, depth: dict[int, float]) -> None:
    """Notes the server's own queue at this level, where it shows one."""
    with suppress(PrerollError, ValueError):
        found = WAITING.search(get(server, "/metrics")[1])
        if found:
            depth[level] = float(found[1])
