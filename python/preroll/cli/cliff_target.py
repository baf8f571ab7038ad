"""What `preroll cliff` overloads: a URL, or one replica of a stage that is being served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
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
from preroll.instruments.load.requests import Server, parse_address, parse_url
from preroll.instruments.load.result import Targets
from preroll.instruments.replica import own_replica
from preroll.serve.held import held_replica
from preroll.serve.statedir import default_state

WAITING = re.compile(rb"^(?:vllm:num_requests_waiting|llamacpp:requests_deferred)[^ ]* (\S+)", re.M)
MEASURING = ".measuring"
NO_SERVER = Server("", "127.0.0.1:0", "")


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
        return [f"written to {measurements.keep(self.app.path, entry)}"]


def promise_of(found: Found) -> Targets:
    """What the stage itself promises each request: time to first content, and no two frames
    further apart. Its ITL is a quantile over tokens, which no single request can miss."""
    if found.app is None:
        return Targets()
    slo = found.app.stages[found.stage].slo
    ttft_ms = None if slo.ttft_p95_s is None else slo.ttft_p95_s * 1e3
    gap_ms = None if slo.pace_s is None else slo.pace_s * 1e3
    return Targets(ttft_ms=ttft_ms, gap_ms=gap_ms)


def find(target: str, stage: str | None) -> Found:
    """What a target names; a stage of an app has no server yet (see `loaded`)."""
    if not target.endswith(".toml"):
        if stage is not None:
            raise InputError(f"'{target}' is no app file (.toml): a STAGE goes with one only")
        return Found(parse_url(target), target)
    app = load_app(Path(target))
    if stage is None and len(app.stages) == 1:
        stage = next(iter(app.stages))
    if stage is None or stage not in app.stages:
        raise InputError(f"STAGE '{stage}'; allowed: {', '.join(app.stages)}")
    return Found(NO_SERVER, f"stage {stage} of {target}", app=app, stage=stage)


@contextmanager
def loaded(found: Found, is_served: bool, state: Path | None) -> Iterator[Found]:
    """The target with a server to load: for a stage, a replica that this starts and ends, or
    (`is_served`) one of the running app, which the door leaves alone meanwhile."""
    if found.app is None:
        yield found
        return
    if is_served:
        where = state_of(str(found.app.path), state)
        with held_replica(where, found.stage) as held:
            note = (
                f"replica {held.replica} of the running app, out of the door's rotation meanwhile"
            )
            server = parse_address(held.address, held.keepalive_ms)
            yield replace(found, server=server, notes=(note,))
        return
    stage = found.app.stages[found.stage]
    with own_replica(stage, found.app.directory, measuring_folder()) as own:
        note = f"a replica of its own, ready after {own.start.total_s:.1f} s, no door in front"
        yield replace(found, server=parse_address(own.address, own.keepalive_ms), notes=(note,))


def measuring_folder() -> Path:
    """Where replicas that measurements start have their state."""
    return default_state("x").parent / MEASURING


def queue_depth(server: Server, seen: list[float]) -> None:
    """Notes the server's own queue, where it shows one."""
    with suppress(PrerollError, ValueError):
        found = WAITING.search(get(server, "/metrics")[1])
        if found:
            seen.append(float(found[1]))
