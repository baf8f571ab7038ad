"""A minimal fleet for policy tests: constant start time, load given as a function of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from preroll.core import Decision, Observation, Policy, ScaleParameters


@dataclass
class Fleet:
    policy: Policy
    parameters: ScaleParameters
    start_s: float = 60.0
    tick_s: float = 5.0
    wall_s: float = 1_700_000_000.0
    now_s: float = 0.0
    ready: int = 0
    starting: list[float] = field(default_factory=list)
    gaps_s: tuple[float, ...] = ()
    idle_since_s: float = 0.0

    def tick(self, load: float) -> Decision:
        """One control tick with `load` concurrent requests; applies the decision."""
        self.now_s += self.tick_s
        self.ready += sum(at <= self.now_s for at in self.starting)
        self.starting = [at for at in self.starting if at > self.now_s]
        if load > 0:
            if self.now_s - self.idle_since_s > self.tick_s:
                self.gaps_s = (*self.gaps_s, self.now_s - self.idle_since_s)[-256:]
            self.idle_since_s = self.now_s
        requests = math.ceil(load)
        served = min(requests, self.ready * 1000)
        decision = self.policy.decide(
            Observation(
                now_s=self.now_s,
                wall_s=self.wall_s + self.now_s,
                num_ready=self.ready,
                num_starting=len(self.starting),
                in_flight=served,
                queued=requests - served,
                arrivals=requests,
                concurrency=load,
                idle_s=self.now_s - self.idle_since_s,
                gaps_s=self.gaps_s,
                start_s=self.start_s,
            ),
            self.parameters,
        )
        self.apply(decision.replicas)
        return decision

    def apply(self, wanted: int) -> None:
        have = self.ready + len(self.starting)
        self.starting += [self.now_s + self.start_s] * max(wanted - have, 0)
        while self.ready + len(self.starting) > wanted:
            if self.starting:
                self.starting.pop()
            else:
                self.ready -= 1

    def run(self, load: Callable[[float], float], ticks: int) -> Iterator[int]:
        for _ in range(ticks):
            yield self.tick(load(self.now_s)).replicas
