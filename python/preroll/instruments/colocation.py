"""What two stages on one machine do to each other: each alone, then both under load together.

Every round runs A alone, B alone and both, in an order that rotates, so that drift of the machine
hits all three. Ratios are taken within a round. Answers together are compared with answers alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from preroll.errors import RefusedError
from preroll.instruments.intervals import Interval, share_interval
from preroll.instruments.load.client import Client
from preroll.instruments.load.records import read
from preroll.instruments.load.requests import Server
from preroll.quantiles import median_interval

Json = dict[str, Any]
ROUNDS = 6
"""The least for which a median has a 95 % interval."""
TAIL = 0.95
ORDERS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


@dataclass(frozen=True, slots=True)
class Load:
    """One stage's part: where it listens, what is asked, how many at once."""

    name: str
    server: Server
    requests: tuple[Json, ...]
    connections: int


@dataclass(frozen=True, slots=True)
class Look:
    """One stage in one run: requests per second, the p95 of each request's longest gap in
    milliseconds, and every answer as (request, text)."""

    rate_per_s: float
    gap_ms: float
    answers: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """What the other stage does to this one. `rate`: requests per second together over alone;
    `gap`: the p95 gap together over alone (None without streams); each the median over rounds
    with its 95 % interval. `changed`: the share of answers together that were never seen alone;
    `changed_alone`: the same of the later rounds alone, which is the server's own variation."""

    stage: str
    rate: Interval
    gap: Interval | None
    changed: Interval
    changed_alone: Interval

    def finding(self) -> str:
        rate, changed = self.rate, self.changed
        said = [
            f"{self.stage} keeps {rate.value:.0%} [{rate.low:.0%}, {rate.high:.0%}] of its rate"
        ]
        if self.gap is not None:
            gap = self.gap
            said.append(f"its p95 gap × {gap.value:.2f} [{gap.low:.2f}, {gap.high:.2f}]")
        if changed.low > self.changed_alone.high:
            said.append(
                f"{changed.value:.1%} of its answers change: corruption, or numerics that depend on"
                " the batch (preroll probe determinism tells which)"
            )
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class Colocation:
    effects: tuple[Effect, Effect]

    @property
    def together(self) -> float:
        """Sum of both shares: 2 is no interference, 1 is what taking turns would give."""
        return sum(effect.rate.value for effect in self.effects)


def probe(first: Load, second: Load, seconds: float, rounds: int = ROUNDS) -> Colocation:
    """Raises RefusedError with too few rounds or when nothing succeeds."""
    if rounds < ROUNDS:
        raise RefusedError(f"{rounds} rounds: an interval of the median needs {ROUNDS}")
    alone: dict[str, list[Look]] = {first.name: [], second.name: []}
    both: dict[str, list[Look]] = {first.name: [], second.name: []}
    for number in range(rounds):
        for what in ORDERS[number % len(ORDERS)]:
            loads = ((first,), (second,), (first, second))[what]
            for load, look in _run(loads, seconds).items():
                (both if what == 2 else alone)[load].append(look)
    effects = [_effect(load.name, alone[load.name], both[load.name]) for load in (first, second)]
    return Colocation((effects[0], effects[1]))


def _effect(name: str, alone: Sequence[Look], both: Sequence[Look]) -> Effect:
    # The first round alone is the reference; what later rounds alone say anew is own variation.
    known = set(alone[0].answers)
    later = [answer for look in alone[1:] for answer in look.answers]
    together = [answer for look in both for answer in look.answers]
    streams = all(look.gap_ms > 0 for look in (*alone, *both))
    return Effect(
        stage=name,
        rate=_ratio([b.rate_per_s / a.rate_per_s for a, b in zip(alone, both, strict=True)]),
        gap=_ratio([b.gap_ms / a.gap_ms for a, b in zip(alone, both, strict=True)])
        if streams
        else None,
        changed=share_interval(sum(a not in known for a in together), len(together)),
        changed_alone=share_interval(sum(a not in known for a in later), len(later)),
    )


def _ratio(values: Sequence[float]) -> Interval:
    found = median_interval(values)
    assert found is not None
    return Interval(statistics.median(values), *found)


def _run(loads: Sequence[Load], seconds: float) -> dict[str, Look]:
    with TemporaryDirectory() as folder, ExitStack() as stack:
        files = {load.name: Path(folder) / f"{n}.ndjson" for n, load in enumerate(loads)}
        clients = [
            stack.enter_context(Client(_spec(load, seconds, files[load.name]))) for load in loads
        ]
        for client in clients:
            for _ in client:
                pass
        return {name: _look(name, path, seconds) for name, path in files.items()}


def _spec(load: Load, seconds: float, records: Path) -> Json:
    return {
        "version": 1,
        **load.server.spec(),
        "requests": list(load.requests),
        "load": {"mode": "closed", "connections": load.connections},
        "stop": {"seconds": seconds},
        "warmup": {"requests": load.connections},
        "keep_text": True,
        "records": str(records),
    }


def _look(name: str, path: Path, seconds: float) -> Look:
    raw = read(path)
    if not raw.ok:
        kinds = {r["failure"]["kind"]: r["failure"]["detail"] for r in raw.measured if r["failure"]}
        raise RefusedError(f"nothing of {name} succeeded within {seconds:g} s: {kinds}")
    start_ns = min(r["intended_ns"] for r in raw.ok)
    span_s = (max(r["end_ns"] for r in raw.ok) - start_ns) / 1e9
    gaps = sorted(r["max_gap_ns"] / 1e6 for r in raw.ok)
    return Look(
        rate_per_s=len(raw.ok) / span_s,
        gap_ms=gaps[min(len(gaps) - 1, int(TAIL * len(gaps)))],
        answers=tuple((r["template"], r.get("text", "")) for r in raw.ok),
    )


def text(found: Colocation, title: str) -> str:
    lines = [f"# {title}", ""]
    lines += [f"- {effect.finding()}" for effect in found.effects]
    lines.append(
        f"- together {found.together:.2f} of a machine each: 2 is no interference, 1 is what"
        " taking turns would give"
    )
    return "\n".join(lines) + "\n"


def extra(found: Colocation) -> Mapping[str, float]:
    """For the Measurement: everything beside its value, which is `together`."""
    values: dict[str, float] = {}
    for which, effect in zip(("own", "other"), found.effects, strict=True):
        values |= {
            f"{which}_rate": effect.rate.value,
            f"{which}_rate_low": effect.rate.low,
            f"{which}_changed": effect.changed.value,
        }
        if effect.gap is not None:
            values[f"{which}_gap"] = effect.gap.value
    return values
