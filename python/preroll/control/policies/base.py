"""What every scaling policy shares: the bounds, the demand and windows over past ticks.

A policy implements `core.Policy`: `decide(observation, parameters) -> Decision`. It keeps its
memory inside the object and reads no clock, so that `preroll serve` and `preroll simulate` run the
same object. Make one object per stage.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from preroll.core import Decision, Observation, ScaleParameters

DEFAULT_TARGET = 1.0
DEFAULT_START_S = 300.0  # before the first measured start: between a warm and a cold LLM start


def bounded(replicas: int, reason: str, parameters: ScaleParameters) -> Decision:
    """A decision inside [min_replicas, max_replicas]; the reason says when a bound cut it."""
    kept = min(max(replicas, parameters.min_replicas), parameters.max_replicas)
    if kept > replicas:
        reason += f", held at min {kept}"
    elif kept < replicas:
        reason += f", cut at max {kept}"
    return Decision(kept, reason)


def in_system(observation: Observation) -> int:
    """Requests that a replica serves or that wait for one."""
    return observation.in_flight + observation.queued


def demand(observation: Observation) -> float:
    """Concurrency to provide for, in requests.

    The time average since the last tick; while requests wait, what is in the system now, because
    an average over a tick shows a spike a whole tick late.
    """
    now = in_system(observation) if observation.queued else 0
    return max(observation.concurrency, now)


def replicas_for(concurrency: float, target: float) -> int:
    """Least number of replicas that keeps `concurrency` at or below `target` on each."""
    return math.ceil(round(concurrency / target, 9))


def start_s(observation: Observation) -> float:
    """Measured cost of a start in seconds, or a stated default before the first measurement."""
    return DEFAULT_START_S if observation.start_s is None else observation.start_s


@dataclass(slots=True)
class MaxWindow:
    """Largest of the values put in during the last `span_s` seconds; amortised O(1)."""

    _items: deque[tuple[float, int]] = field(default_factory=deque)

    def put(self, now_s: float, value: int, span_s: float) -> int:
        while self._items and self._items[-1][1] <= value:
            self._items.pop()
        self._items.append((now_s, value))
        while self._items[0][0] < now_s - span_s:
            self._items.popleft()
        return self._items[0][1]


@dataclass(slots=True)
class MeanWindow:
    """Time-weighted mean of tick averages over the last `span_s` seconds."""

    span_s: float
    _items: deque[tuple[float, float]] = field(default_factory=deque)

    def put(self, now_s: float, value: float) -> float:
        self._items.append((now_s, value))
        while len(self._items) > 1 and self._items[0][0] <= now_s - self.span_s:
            self._items.popleft()
        total = weight = 0.0
        before = now_s - self.span_s
        for at, item in self._items:
            width = max(at - before, 1e-9)
            total += item * width
            weight += width
            before = at
        return total / weight
