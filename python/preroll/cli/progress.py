"""What `preroll serve` prints: one line per state change, the bill of each start, a spinner."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from preroll.config import App
from preroll.core import Gap, Phase, Preparedness, ReplicaState, Start, Wait
from preroll.engines.base import get_engine
from preroll.instruments.starts_text import one_start

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

ENDED = (ReplicaState.READY, ReplicaState.STOPPED, ReplicaState.FAILED)
CHAT_ENGINES = ("llama.cpp", "vllm", "sglang", "trtllm")


class Progress:
    """Prints events as they happen; on a terminal with a spinner per starting replica."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._starting: dict[str, TaskID] = {}
        self._begun_s = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bars
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            console = Console(stderr=True, highlight=False)
            self._bars = Bars(*columns, console=console, transient=True)
            self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        """Prints a line; a terminal or pipe that has gone away must not end the service."""
        with suppress(OSError):
            if self._bars is not None:
                self._bars.console.print(text, markup=False, soft_wrap=True)
            else:
                print(text, file=sys.stderr, flush=True)

    def event(
        self, kind: str, stage: str | None, replica: str | None, data: dict[str, Any]
    ) -> None:
        """A `Watcher`: called on every event of the controller."""
        if kind == "state" and replica:
            self._state(replica, ReplicaState(data["to"]), data)
        elif kind == "start" and replica:
            self.say("\n".join(one_start(start_of(stage or "", replica, data))))
        elif kind == "adopted":
            self._line(replica, f"adopted, {data['state']}")
        elif kind == "circuit_open":
            self._line(
                stage,
                f"{data['failures']} failures in a row; next try in {data['retry_in_s']:.0f} s",
            )
        elif kind == "wanted":
            self._line(stage, f"wants {data['replicas']}: {data['reason']}")
        elif kind == "overuse":
            over, declared = data["over_bytes"] / 2**20, data["declared_bytes"] / 2**20
            text = f"uses {over:.0f} MiB more {data['of']} than its {declared:.0f} MiB"
            self._line(replica, text)
        elif kind in ("door_lost", "door_failed"):
            self._line("door", f"{kind[5:]}: {data.get('reason') or data.get('error')}")
        elif kind == "warning":
            self.say(f"warning: {data['text']}")
        elif kind in ("leftover", "door_replica_down", "upstream_down", "upstream_up"):
            self._line(replica or stage, f"{kind.replace('_', ' ')} {data.get('reason') or ''}")

    def _state(self, replica: str, state: ReplicaState, data: dict[str, Any]) -> None:
        if self._bars is not None:
            self._spin(self._bars, replica, state)
        why = data.get("cause") or data.get("reason")
        self._line(replica, f"{state}{f': {why}' if why else ''}")

    def _spin(self, bars: Bars, replica: str, state: ReplicaState) -> None:
        if state in ENDED:
            task = self._starting.pop(replica, None)
            if task is not None:
                bars.remove_task(task)
        elif state is not ReplicaState.DRAINING:
            if replica not in self._starting:
                self._starting[replica] = bars.add_task("")
            bars.update(self._starting[replica], description=f"{replica} {state}")

    def _line(self, subject: str | None, text: str) -> None:
        self.say(f"{time.monotonic() - self._begun_s:8.2f} s  {subject or 'preroll'}  {text}")


def start_of(stage: str, replica: str, data: dict[str, Any]) -> Start:
    """The start in a `start` event's data."""
    return Start(
        replica=replica,
        stage=stage,
        spawned_ns=data["spawned_ns"],
        ready_ns=data["ready_ns"],
        phases=tuple(Phase(Wait(w), label, s, e) for w, label, s, e in data["phases"]),
        preparedness=Preparedness(data["preparedness"]),
        gap=Gap(*data["gap"]) if data.get("gap") else None,
    )


def curl_line(app: App, url: str) -> list[str]:
    """A command that talks to the first stage."""
    stage = next(iter(app.stages.values()))
    header = ["-H", "authorization: Bearer $KEY"] if app.serve.keys else []
    if stage.engine in CHAT_ENGINES:
        model = get_engine(stage.engine).models(stage)[0]
        body = f'{{"model":"{model}","messages":[{{"role":"user","content":"Hello!"}}]}}'
        words = ["curl", f"{url}/v1/chat/completions", "-H", "content-type: application/json"]
        return [shlex.join([*words, *header, "-d", body])]
    path = app.routes[0].path.removesuffix("*") if app.routes else "/"
    return [shlex.join(["curl", f"{url}{path}", *header])]
