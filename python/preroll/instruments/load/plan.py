"""A load as it was asked for, and the client's specification of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preroll.errors import InputError
from preroll.instruments.load.requests import Server

Json = dict[str, Any]
DEFAULT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How to load a server. Exactly one of `connections`, `rate` and `replay_s` is given.

    Rates are runs per second, times seconds. A run is `calls` requests one after the other: an
    agent's n calls, a conversation's turns.
    """

    connections: int | None = None
    rate: float | None = None
    replay_s: tuple[float, ...] | None = None
    arrivals: str = "poisson"
    cv: float = 1.0
    ramp_to: float | None = None
    ramp_s: float = 0.0
    requests: int | None = None
    seconds: float | None = None
    warmup: int | None = None
    calls: int = 1
    think_s: float = 0.0
    timeout_s: float = 60.0
    seed: int = 0
    reuse: bool = True

    def __post_init__(self) -> None:
        modes = [self.connections, self.rate, self.replay_s]
        if sum(m is not None for m in modes) != 1:
            raise InputError("one load is needed: --connections N, --rate R or --replay FILE")
        for name in ("connections", "rate", "requests", "seconds", "calls", "timeout_s", "cv"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InputError(f"{name} {value}: allowed: above 0")
        if (self.ramp_to is None) != (self.ramp_s == 0):
            raise InputError("--ramp-to and --ramp go together: where to, and over which time")
        if self.arrivals not in ("poisson", "constant", "gamma"):
            raise InputError(f"--arrivals '{self.arrivals}'; allowed: poisson, constant, gamma")

    @property
    def is_open(self) -> bool:
        return self.connections is None

    @property
    def warmup_runs(self) -> int:
        """Runs that are sent first, shown apart and left out of every statistic."""
        if self.warmup is not None:
            return self.warmup
        if self.replay_s is not None:
            return 0
        return self.connections if self.connections is not None else 5

    def sentence(self) -> str:
        if self.connections is not None:
            what = f"closed loop, {self.connections} at once"
        elif self.rate is not None:
            what = f"open loop, {self.rate:g} runs/s, {self.arrivals}"
        else:
            what = f"replay of {len(self.replay_s or ())} arrivals"
        ramp = f", to {self.ramp_to:g} over {self.ramp_s:g} s" if self.ramp_to else ""
        calls = f", {self.calls} calls a run" if self.calls > 1 else ""
        return what + ramp + calls

    def _load(self) -> Json:
        ramp: Json = {}
        if self.connections is not None:
            if self.ramp_to is not None:
                ramp = {"ramp_to": int(self.ramp_to), "ramp_s": self.ramp_s}
            think = self.think_s * 1000
            return {"mode": "closed", "connections": self.connections, "think_ms": think} | ramp
        if self.replay_s is not None:
            return {"mode": "replay", "at_s": list(self.replay_s)}
        if self.ramp_to is not None:
            ramp = {"ramp_to": self.ramp_to, "ramp_s": self.ramp_s}
        shape = {"arrivals": self.arrivals, "cv": self.cv}
        return {"mode": "open", "rate": self.rate} | shape | ramp

    def spec(self, server: Server, requests: Sequence[Json], records: Path | None) -> Json:
        """The document for `preroll-load run`."""
        stop: Json = {}
        if self.requests is not None:
            stop["requests"] = self.requests
        seconds = self.seconds
        if not stop and seconds is None and self.replay_s is None:
            seconds = DEFAULT_SECONDS
        if seconds is not None:
            stop["seconds"] = seconds
        return {
            "version": 1,
            **server.spec(),
            "requests": list(requests),
            "load": self._load(),
            "stop": stop,
            "warmup": {"requests": self.warmup_runs},
            "calls_per_run": self.calls,
            "timeout_s": self.timeout_s,
            "seed": self.seed,
            "reuse": self.reuse and server.reuse,
            "detail": "gaps",
            "records": None if records is None else str(records),
        }
