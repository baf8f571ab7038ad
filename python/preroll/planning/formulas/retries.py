"""What retries do to a spike: clients that give up come back, dead work may still be served."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from preroll.planning.formulas.check import positive, whole

IN_SERVICE = 3
"""Fields of an attempt that still waits; one more marks it as being served."""
MOST_SERVED = 14400
"""Requests served per run; above it both rates are divided alike (the fluid limit is unchanged)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A spike with retries. `peak`: most attempts queued; `recovered_s`: when no queue is left,
    None is not within the horizon; `wasted`: share of the service given to abandoned attempts;
    `failed`: share of clients that gave up for good."""

    peak: float
    recovered_s: float | None
    wasted: float
    failed: float


@dataclass(frozen=True, slots=True)
class Spike:
    """Rates in requests/s: `rate` arrives from time 0 on an empty queue; `ready` replicas serve
    `service_rate` each, `added` more do after `start_s` seconds."""

    rate: float
    service_rate: float
    start_s: float
    ready: int = 1
    added: int = 1

    @property
    def capacity(self) -> float:
        """Requests/s after the start."""
        return self.service_rate * (self.ready + self.added)


@dataclass(frozen=True, slots=True)
class Clients:
    """`timeout_s` bounds the wait for the first byte (None is a patient client); `retries` more
    attempts follow, each at once after a time-out.
    `drop_dead`: the server forgets an attempt whose client has left."""

    timeout_s: float | None
    retries: int = 3
    drop_dead: bool = False


def is_metastable(spike: Spike, clients: Clients) -> bool:
    """Whether an overload can keep itself up: dead work is served, every attempt times out, and
    λ·(1+retries) is at or above the capacity after the start, so no queue ever drains.

    Valid: fluid limit, λ below that capacity (else plain overload). The trigger is a peak wait
    above the time-out: see `outcome`. Source: Bronson et al., Metastable Failures (2021).
    """
    if clients.timeout_s is None or clients.drop_dead:
        return False
    return spike.rate * (1 + clients.retries) >= spike.capacity


def outcome(spike: Spike, clients: Clients, horizon_s: float = 1800.0) -> Outcome:
    """The spike played through with evenly spaced arrivals and fixed service times.

    Valid: rates > 0, horizon beyond the start. Deterministic: equal inputs, equal results. The
    ready replicas are played as one fast server and the added ones as another.
    Ignores randomness and back-off between attempts (a client with exponential back-off does
    less harm). Source: event-by-event FIFO; reproduces the fluid triangle for patient clients.
    """
    positive("rate", spike.rate, 1e9)
    whole("retries", clients.retries, 0, 1000)
    positive("horizon_s", horizon_s, 1e7)
    positive("service_rate", spike.service_rate, 1e9)
    whole("ready", spike.ready, 1, 100_000)
    whole("added", spike.added, 0, 100_000)
    scale = max(1.0, spike.capacity * horizon_s / MOST_SERVED)
    run = _Run(spike, clients, horizon_s, scale, idle=[spike.service_rate * spike.ready])
    run.play()
    served = max(1, run.useful + run.dead)
    gone = run.failed / max(1, run.arrived)
    return Outcome(run.peak * scale, run.recovered_s, run.dead / served, gone)


@dataclass(slots=True)
class _Run:
    """One play: events (time, order, kind, attempt), and time-outs apart, which come in order.

    An attempt is [arrival, tries, is_alive], and the rate of its server once it is served.
    """

    spike: Spike
    clients: Clients
    horizon_s: float
    scale: float
    queue: deque[list[float]] = field(default_factory=deque)
    events: list[tuple[float, int, str, list[float]]] = field(default_factory=list)
    expiries: deque[tuple[float, list[float]]] = field(default_factory=deque)
    order: int = 0
    waiting: int = 0
    idle: list[float] = field(default_factory=list)
    peak: int = 0
    useful: int = 0
    dead: int = 0
    failed: int = 0
    arrived: int = 0
    recovered_s: float | None = None

    def play(self) -> None:
        self.push(0.0, "arrive", [])
        self.push(self.spike.start_s, "ready", [])
        now = 0.0
        while now <= self.horizon_s:
            if self.expiries and self.expiries[0][0] < self.events[0][0]:
                now, attempt = self.expiries.popleft()
                self.give_up(now, attempt)
                continue
            now, _, kind, attempt = heapq.heappop(self.events)
            getattr(self, kind)(now, attempt)
            if now >= self.spike.start_s and not self.waiting and self.idle:
                self.recovered_s = now
                return

    def push(self, when: float, kind: str, attempt: list[float]) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, kind, attempt))

    def arrive(self, now: float, _: list[float]) -> None:
        self.arrived += 1
        self.push(now + self.scale / self.spike.rate, "arrive", [])
        self.enter(now, 0)

    def enter(self, now: float, tries: int) -> None:
        attempt = [now, tries, 1.0]
        if self.clients.timeout_s is not None:
            self.expiries.append((now + self.clients.timeout_s, attempt))
        self.queue.append(attempt)
        self.waiting += 1
        self.peak = max(self.peak, self.waiting)
        self.serve(now)

    def ready(self, now: float, _: list[float]) -> None:
        if self.spike.added:
            self.idle.append(self.spike.service_rate * self.spike.added)
        self.serve(now)

    def give_up(self, now: float, attempt: list[float]) -> None:
        if len(attempt) > IN_SERVICE:
            return
        attempt[2] = 0.0
        if self.clients.drop_dead:
            self.waiting -= 1
        if attempt[1] < self.clients.retries:
            self.enter(now, int(attempt[1]) + 1)
        else:
            self.failed += 1

    def serve(self, now: float) -> None:
        while self.idle and self.queue:
            attempt = self.queue.popleft()
            if self.clients.drop_dead and not attempt[2]:
                continue
            rate = self.idle.pop()
            attempt.append(rate)
            self.waiting -= 1
            self.push(now + self.scale / rate, "done", attempt)

    def done(self, now: float, attempt: list[float]) -> None:
        self.idle.append(attempt[IN_SERVICE])
        if attempt[2]:
            self.useful += 1
        else:
            self.dead += 1
        self.serve(now)
