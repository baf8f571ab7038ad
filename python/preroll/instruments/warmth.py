"""Is a replica that says ready really warm? First calls against steady state, route by route.

A route is one kind of request. Every replica is fresh and the order of the routes rotates from
replica to replica: work that only the very first call pays is told from work of one route.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from preroll.errors import RefusedError
from preroll.instruments.load.client import Client
from preroll.instruments.load.requests import Server
from preroll.instruments.load.result import e2e_ms

Json = dict[str, Any]
# A first call this much above the steady state is worth a warm-up request.
MIN_MISSED_MS, MIN_FACTOR = 5.0, 1.3
MIN_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """One route on one fresh replica. Times are end to end in milliseconds; `position`: how many
    routes were asked before it. By chance a first call is the slowest of 21 in one of 21 replicas,
    on three in a row in one of 9,261."""

    position: int
    first_ms: float
    steady_ms: float
    steady_worst_ms: float

    @property
    def missed_ms(self) -> float:
        return self.first_ms - self.steady_ms

    @property
    def is_late(self) -> bool:
        return (
            self.first_ms > self.steady_worst_ms
            and self.missed_ms > MIN_MISSED_MS
            and self.first_ms > MIN_FACTOR * self.steady_ms
        )


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    seen: tuple[Seen, ...]

    @property
    def missed_ms(self) -> float:
        """Median over replicas of what the first call took beyond the steady state."""
        return statistics.median(s.missed_ms for s in self.seen)

    def finding(self) -> str | None:
        """What the explicit warm-up missed. With fewer than three replicas one late call may be
        chance: it is told as seen, not as found."""
        late = [s for s in self.seen if s.is_late]
        if not late:
            return None
        # A busy machine makes a first call late too, but not by nearly as much as the work does.
        median_ms = statistics.median(s.missed_ms for s in late)
        late = [s for s in late if s.missed_ms > median_ms / 4]
        size = f"{statistics.median(s.missed_ms for s in late):.0f} ms"
        if len(self.seen) < MIN_REPLICAS:
            return f"{self.name}: the first call took {size} longer, seen {len(late)} times"
        if len(late) == len(self.seen):
            return f"{self.name}: its first call takes {size} longer on every replica; warm it up"
        if all(s.position == 0 for s in late):
            return f"whatever is called first takes {size} longer (seen at {self.name})"
        return None


@dataclass(frozen=True, slots=True)
class Warmth:
    """What one stage showed. `starts_s`: spawn to ready of each replica; `rate_per_s`: requests
    per second with `connections` in flight, one value per replica."""

    name: str
    starts_s: tuple[float, ...]
    routes: tuple[Route, ...]
    connections: int
    rate_per_s: tuple[float, ...]

    @property
    def missed_ms(self) -> float:
        """The worst route that has a finding; 0 when all are warm."""
        return max((r.missed_ms for r in self.routes if r.finding()), default=0.0)

    def findings(self) -> list[str]:
        said = (route.finding() for route in self.routes)
        return [one for one in said if one is not None]


Fresh = Callable[[], AbstractContextManager[tuple[Server, float]]]
"""A fresh replica: where it listens, and how long its start took in seconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`steady`: calls per route after the first, one after the other; `connections` and
    `requests`: of the throughput run."""

    replicas: int = MIN_REPLICAS
    steady: int = 20
    connections: int = 8
    requests: int = 64
    timeout_s: float = 120.0


def probe(
    sides: Mapping[str, tuple[Fresh, Mapping[str, Json]]], settings: Settings
) -> list[Warmth]:
    """Each side's replicas and routes (templates by name), interleaved so that drift of the
    machine hits all. Raises RefusedError when a request fails."""
    found: dict[str, list[tuple[float, dict[str, Seen], float]]] = {name: [] for name in sides}
    for number in range(settings.replicas):
        for name, (fresh, routes) in sides.items():
            with fresh() as (server, start_s):
                order = _rotated(list(routes), number)
                seen = {
                    route: _seen(server, routes[route], position, settings)
                    for position, route in enumerate(order)
                }
                rate = _throughput(server, routes[order[0]], settings)
            found[name].append((start_s, seen, rate))
    return [_warmth(name, runs, list(sides[name][1]), settings) for name, runs in found.items()]


def _warmth(
    name: str,
    runs: Sequence[tuple[float, Mapping[str, Seen], float]],
    routes: Sequence[str],
    settings: Settings,
) -> Warmth:
    return Warmth(
        name=name,
        starts_s=tuple(start_s for start_s, _, _ in runs),
        routes=tuple(Route(r, tuple(seen[r] for _, seen, _ in runs)) for r in routes),
        connections=settings.connections,
        rate_per_s=tuple(rate for _, _, rate in runs),
    )


def _rotated(names: list[str], by: int) -> list[str]:
    at = by % len(names)
    return names[at:] + names[:at]


def _seen(server: Server, request: Json, position: int, settings: Settings) -> Seen:
    times = [_e2e(r) for r in _run(server, request, 1, settings.steady + 1, settings)]
    first, steady = times[0], times[1:]
    return Seen(position, first, statistics.median(steady), max(steady))


def _throughput(server: Server, request: Json, settings: Settings) -> float:
    records = list(_run(server, request, settings.connections, settings.requests, settings))
    start_ns = min(r["intended_ns"] for r in records)
    return len(records) * 1e9 / float(max(r["end_ns"] for r in records) - start_ns)


def _run(
    server: Server, request: Json, connections: int, count: int, settings: Settings
) -> Iterator[Json]:
    spec = {
        "version": 1,
        **server.spec(),
        "requests": [request],
        "load": {"mode": "closed", "connections": connections},
        "stop": {"requests": count},
        "timeout_s": settings.timeout_s,
    }
    with Client(spec) as client:
        for record in client:
            if record.get("type") != "request":
                continue
            if record["failure"] is not None:
                why = f"{record['failure']['kind']}: {record['failure']['detail']}"
                raise RefusedError(f"{server.address}: a request failed, {why}")
            yield record


def _e2e(record: Json) -> float:
    value = e2e_ms(record)
    assert value is not None
    return value


def break_even(first: Warmth, second: Warmth) -> str:
    """From how many requests per start on the one with the longer start pays: eager against
    compiled. Saved time is that of a request at full throughput."""
    dear, cheap = sorted((first, second), key=lambda w: -statistics.median(w.starts_s))
    extra_s = statistics.median(dear.starts_s) - statistics.median(cheap.starts_s)
    saved_s = 1 / statistics.median(cheap.rate_per_s) - 1 / statistics.median(dear.rate_per_s)
    what = f"{dear.name} takes {extra_s:.2f} s longer to start than {cheap.name}"
    if saved_s <= 0:
        return f"{what} and serves no faster: {cheap.name} is better at any traffic"
    return (
        f"{what} and saves {saved_s * 1e3:.2f} ms per request at {dear.connections} in flight: "
        f"it pays from {extra_s / saved_s:,.0f} requests per start on"
    )


def text(found: Sequence[Warmth]) -> str:
    lines: list[str] = []
    for one in found:
        start_s, rate = statistics.median(one.starts_s), statistics.median(one.rate_per_s)
        count = len(one.starts_s)
        lines += [f"# {one.name}: {count} fresh replica{'s' if count > 1 else ''}", ""]
        lines += [f"- {finding}" for finding in one.findings()] or [
            "- warm: no first call was late"
        ]
        lines += [
            f"- start {start_s:.2f} s; {rate:.1f} requests/s with {one.connections} in flight",
            "",
            "| route | first call, ms (median, worst) | steady, ms (median, worst) |",
            "|---|---|---|",
        ]
        lines += [_row(route) for route in one.routes] + [""]
    if len(found) == 2:
        lines.append(break_even(found[0], found[1]))
    return "\n".join(lines).rstrip() + "\n"


def _row(route: Route) -> str:
    first = [s.first_ms for s in route.seen]
    steady = statistics.median(s.steady_ms for s in route.seen)
    worst = max(s.steady_worst_ms for s in route.seen)
    return (
        f"| {route.name} | {statistics.median(first):.1f}, {max(first):.1f} "
        f"| {steady:.1f}, {worst:.1f} |"
    )
