"""The executor that sends real requests: closed-loop levels through the load client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from preroll.errors import UnavailableError
from preroll.instruments.load.client import Client
from preroll.instruments.load.requests import Server
from preroll.instruments.load.result import Targets, is_within, met_closed

Json = dict[str, Any]
ASKED_PER_LOOK = 4


class LiveProbe:
    """Levels of concurrency against a server. Use as a context; records go to `records` as they
    come. Raises UnavailableError when the client ends by itself."""

    def __init__(
        self,
        server: Server,
        requests: Sequence[Json],
        targets: Targets,
        records: Path,
        timeout_s: float = 60.0,
    ) -> None:
        self._targets = targets
        self._file: TextIO = records.open("w")
        self._client = Client(_spec(server, requests, timeout_s))
        self._lines: Iterator[Json] = iter(self._client)
        self._spent = 0
        self._step = 0
        self._rates: dict[int, tuple[int, int]] = {}
        self.lag_ms: float | None = None
        self.through_door = False
        self.num_stale = 0
        self.on_level: Callable[[int], None] = lambda level: None
        """Called some times during each look on the way up: the server can be asked things."""

    def __enter__(self) -> LiveProbe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.abort()
        with suppress(Exception):
            for line in self._lines:
                self._note(line)
        self._client.close()
        self._file.close()

    def spent(self) -> int:
        return self._spent

    def measure(self, level: int, count: int, *, drain: bool) -> list[bool]:
        if drain:
            self._drain()
        self._step += 1
        tag = f"{self._step}:{level}"
        self._client.level(level, tag)
        outcomes: list[bool] = []
        first_ns = 0
        between = max(1, count // (ASKED_PER_LOOK + 1))
        # The first `level` requests met a server that was filling or still emptying.
        for number, record in enumerate(self._records(tag)):
            if number >= level:
                first_ns = first_ns or record["end_ns"]
                outcomes.append(not is_within(record, self._targets))
            if drain and number >= level and len(outcomes) % between == 0:
                self.on_level(level)
            if len(outcomes) == count:
                self._count_rate(level, count - 1, record["end_ns"] - first_ns)
                return outcomes
        raise UnavailableError("the load client ended before the level was measured")

    def throughput_per_s(self, level: int) -> float | None:
        """Requests per second at the measured level nearest to `level`; None of nothing."""
        known = self.rates()
        return known[min(known, key=lambda n: abs(n - level))] if known else None

    def rates(self) -> dict[int, float]:
        """Requests per second by level, both ways."""
        return {n: count * 1e9 / ns for n, (count, ns) in self._rates.items() if ns}

    def _count_rate(self, level: int, count: int, span_ns: int) -> None:
        before, spans_ns = self._rates.get(level, (0, 0))
        self._rates[level] = (before + count, spans_ns + span_ns)

    def _drain(self) -> None:
        self._step += 1
        tag = f"{self._step}:drain"
        self._client.level(0, tag)
        for line in self._lines:
            self._note(line)
            if line.get("type") == "drained" and line["tag"] == tag:
                return
        raise UnavailableError("the load client ended while it drained")

    def _records(self, tag: str) -> Iterator[Json]:
        for line in self._lines:
            self._note(line)
            if line.get("type") == "request" and line.get("tag") == tag:
                yield line

    def _note(self, line: Json) -> None:
        if line.get("type") == "request":
            self._spent += 1
            self.through_door |= "replica" in line
            self.num_stale += met_closed(line)
            self._file.write(json.dumps(line) + "\n")
        elif line.get("type") == "end":
            kinds = ("timer_lag_ns", "read_lag_ns")
            self.lag_ms = max(float(line[kind]["p99"]) for kind in kinds) / 1e6


def _spec(server: Server, requests: Sequence[Json], timeout_s: float) -> Json:
    return {
        "version": 1,
        **server.spec(),
        "requests": list(requests),
        "load": {"mode": "closed", "connections": 0},
        "timeout_s": timeout_s,
        "control": True,
    }
