"""Is a front door in the way? The same work through it and past it at rising connections.

What is told apart: time added to the first content and to the whole, connections that never run
together (a cap), work done one after the other (serialisation), chunks held back (buffering), one
slow stream holding others (head of line), and a handshake per request.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from preroll.errors import RefusedError
from preroll.instruments.load.client import Client
from preroll.instruments.load.requests import Ask, Server, template

Json = dict[str, Any]
ROUNDS = 2
# Below these, a difference is not worth a name.
MIN_ADDED_MS, MAX_FACTOR, MAX_BUFFERED = 5.0, 1.5, 0.2


@dataclass(frozen=True, slots=True)
class Side:
    """Medians of one side at one level; times in milliseconds."""

    ttft_ms: float
    e2e_ms: float
    rate_per_s: float
    events_per_read: float
    failures: int


@dataclass(frozen=True, slots=True)
class Level:
    connections: int
    through: Side
    past: Side

    @property
    def added_ms(self) -> float:
        return self.through.ttft_ms - self.past.ttft_ms


@dataclass(frozen=True, slots=True)
class Report:
    """`new_connection_ms`: TTFT through the door on new connections less that on kept ones."""

    levels: tuple[Level, ...]
    new_connection_ms: float

    def findings(self) -> list[str]:
        """What is in the way, with its size and what it is worth; empty: nothing was seen."""
        found = []
        first, last = self.levels[0], self.levels[-1]
        slower = last.past.rate_per_s / max(1e-9, last.through.rate_per_s)
        if slower > MAX_FACTOR and last.added_ms > MIN_ADDED_MS:
            grown = last.added_ms - first.added_ms
            found.append(
                f"serialisation or a cap: at {last.connections} connections the same work runs "
                f"{slower:.1f} times as fast past the door, and {grown:.1f} ms more is added than "
                f"at {first.connections}"
            )
        for level in self.levels:
            held = level.through.events_per_read / level.past.events_per_read
            if held > 1 + MAX_BUFFERED:
                found.append(
                    f"buffering: at {level.connections} connections a read has {held:.1f} times "
                    "as many events through the door as past it"
                )
                break
        for level in self.levels:
            if level.through.failures > level.past.failures:
                found.append(
                    f"failures: {level.through.failures} through the door at {level.connections} "
                    f"connections, {level.past.failures} past it"
                )
                break
        if self.new_connection_ms > MIN_ADDED_MS:
            found.append(
                f"handshakes: a new connection costs {self.new_connection_ms:.1f} ms of TTFT; "
                "pooling in the client saves that per request"
            )
        return found


def probe(door: Server, server: Server, ask: Ask, levels: Sequence[int], requests: int) -> Report:
    """Interleaves both sides at every level, so that drift of the machine hits both.

    Raises RefusedError when nothing succeeds on a side.
    """
    found = []
    for connections in levels:
        runs: dict[str, list[Side]] = {"through": [], "past": []}
        for _ in range(ROUNDS):
            for name, target in (("through", door), ("past", server)):
                count = max(requests, 3 * connections) // ROUNDS
                runs[name].append(_run(target, ask, connections, count, reuse=True))
        found.append(Level(connections, _median(runs["through"]), _median(runs["past"])))
    kept, new = (_run(door, ask, 1, max(20, requests // 10), reuse=r) for r in (True, False))
    return Report(tuple(found), new.ttft_ms - kept.ttft_ms)


def _run(server: Server, ask: Ask, connections: int, count: int, *, reuse: bool) -> Side:
    spec = {
        "version": 1,
        **server.spec(),
        "requests": [template(server, ask, "hello")],
        "load": {"mode": "closed", "connections": connections},
        "stop": {"requests": count},
        "warmup": {"requests": connections},
        "reuse": reuse and server.reuse,
        "detail": "none",
    }
    with Client(spec) as client:
        end = list(client)[-1]
    if not end["ok"]:
        raise RefusedError(f"nothing succeeded at {server.address}: {end['failures']}")
    span_s = (end["end_ns"] - end["measured_from_ns"]) / 1e9
    return Side(
        ttft_ms=end["ttft_ns"]["p50"] / 1e6,
        e2e_ms=end["end_to_end_ns"]["p50"] / 1e6,
        rate_per_s=end["ok"] / span_s,
        events_per_read=end["content_events"] / max(1, end["content_reads"]),
        failures=end["finished"] - end["ok"],
    )


def _median(sides: Sequence[Side]) -> Side:
    names = [f.name for f in dataclasses.fields(Side) if f.name != "failures"]
    middle = {n: statistics.median(getattr(s, n) for s in sides) for n in names}
    return Side(**middle, failures=sum(s.failures for s in sides))


def to_json(report: Report) -> Json:
    return dataclasses.asdict(report) | {"findings": report.findings()}


def text(report: Report, title: str) -> str:
    lines = [f"# {title}", ""]
    lines += [f"- {f}" for f in report.findings()] or ["- nothing in the way was seen"]
    lines += ["", "| connections | TTFT through / past ms | requests/s through / past |"]
    lines.append("|---|---|---|")
    for level in report.levels:
        a, b = level.through, level.past
        lines.append(
            f"| {level.connections} | {a.ttft_ms:.2f} / {b.ttft_ms:.2f} "
            f"| {a.rate_per_s:.1f} / {b.rate_per_s:.1f} |"
        )
    lines += ["", f"A new connection per request adds {report.new_connection_ms:+.2f} ms of TTFT."]
    return "\n".join(lines) + "\n"
