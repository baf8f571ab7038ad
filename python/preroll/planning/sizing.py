"""The sizes that follow from the models: batch limit, service rate, utilisation, replicas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from preroll.core import Preparedness
from preroll.errors import InputError
from preroll.planning.calibration import Estimate, Point, speed_model
from preroll.planning.formulas import kv, queueing, spike, start
from preroll.planning.inputs import Ask

LARGEST_BATCH = 512
"""The largest measured batch: nothing is claimed beyond it."""
WAIT_SHARE = 0.1
"""Without a TTFT target the p95 wait is bounded to this share of the service time."""


@dataclass(frozen=True)
class Sizing:
    """Everything derived from one `Ask`; each property is computed once."""

    ask: Ask

    def point(self, batch: float) -> Point:
        t = self.ask.traffic
        return Point(self.ask.deployment, batch, t.isl, t.osl)

    def tpot(self, batch: float) -> Estimate:
        return speed_model().estimate("tpot", self.point(batch))

    @cached_property
    def first_token(self) -> Estimate:
        """TTFT of a request that does not queue: alone on the replica."""
        return speed_model().estimate("ttft", self.point(1))

    @cached_property
    def pool_bytes(self) -> float:
        return self.ask.deployment.pool()

    @cached_property
    def kv_sessions(self) -> int:
        """Sessions of the traffic's whole context that the KV pool holds."""
        t, d = self.ask.traffic, self.ask.deployment
        context = math.ceil(t.isl + t.osl)
        layout, tp = d.shape.layout, d.kv_split
        return kv.capacity_sessions(layout, self.pool_bytes, context, d.kv_dtype, tp, d.kv_parts)

    @cached_property
    def speed_limit(self) -> tuple[int, int, int]:
        """Largest batch that holds the ITL target: surely (95 %), expected, at best (5 %).

        LARGEST_BATCH three times without a target.
        """
        target = self.ask.slo.itl_p95_s
        if target is None:
            return (LARGEST_BATCH,) * 3
        return (
            largest(lambda b: self.tpot(b).high_s <= target),
            largest(lambda b: self.tpot(b).value_s <= target),
            largest(lambda b: self.tpot(b).low_s <= target),
        )

    @cached_property
    def max_concurrency(self) -> int:
        """The hard limit per replica: what holds the speed target surely, within the KV pool and
        below the measured cliff."""
        limit = min(self.speed_limit[0] or self.speed_limit[1], self.kv_sessions)
        if self.cliff is not None:
            limit = min(limit, self.cliff)
        if limit < 1:
            raise InputError(self._why_nothing())
        return limit

    @cached_property
    def cliff(self) -> int | None:
        """Requests in flight that one replica of this stage was measured to bear; None unknown."""
        measured = self.ask.measured("cliff")
        return None if measured is None else max(1, int(measured.value))

    def _why_nothing(self) -> str:
        t, target = self.ask.traffic, self.ask.slo.itl_p95_s
        if self.kv_sessions < 1:
            return (
                f"one session of {t.isl + t.osl:.0f} tokens needs more KV than the pool of"
                f" {self.pool_bytes / 1e9:.3g} GB holds; use more devices or --kv-dtype fp8"
            )
        alone = self.tpot(1).value_s * 1e3
        assert target is not None
        return (
            f"an ITL of {target * 1e3:.3g} ms is not reached even by one stream alone"
            f" ({alone:.3g} ms); use more or faster devices, a smaller dtype, or a longer target"
        )

    @cached_property
    def service_s(self) -> float:
        """Seconds that a request holds its slot at the limit: first token, then every other."""
        return self.first_token.value_s + self.ask.traffic.osl * self.step.value_s

    @cached_property
    def step(self) -> Estimate:
        """TPOT at `max_concurrency`."""
        return self.tpot(self.max_concurrency)

    @cached_property
    def replica_rate(self) -> float:
        """Requests/s of one full replica."""
        return self.max_concurrency / self.service_s

    @cached_property
    def wait_limit_s(self) -> float:
        """What the p95 of the queueing may take: the TTFT target less the prompt's own time."""
        target = self.ask.slo.ttft_p95_s
        if target is None:
            return WAIT_SHARE * self.service_s
        return max(0.0, target - self.first_token.value_s)

    @cached_property
    def utilisation(self) -> float:
        """The highest share of slots in use on average that keeps the p95 wait in its limit."""
        t = self.ask.traffic
        return max(
            0.01,
            queueing.utilisation_target(
                self.wait_limit_s, self.service_s, t.cs, self.max_concurrency, t.ca
            ),
        )

    @cached_property
    def replicas(self) -> int:
        return max(1, math.ceil(self.ask.traffic.rate / (self.utilisation * self.replica_rate)))

    @cached_property
    def added_in_spike(self) -> int:
        """Replicas to add at once so that a spike's queue is empty two starts after it began; 0
        when the ready ones bear it."""
        rate, each = self.ask.traffic.rate * self.ask.spike, self.replica_rate
        if rate <= self.replicas * each:
            return 0
        start_s = self.start_s()
        within_s = 2.0 * max(start_s, 1.0)
        return spike.replicas_to_recover(rate, each, start_s, within_s, self.replicas)

    def start_s(self, level: Preparedness | None = None) -> float:
        """Seconds of a start at a level; the measured start where the level is the asked one."""
        measured = self.ask.measured("start")
        if measured is not None and level in (None, self.ask.preparedness):
            return measured.value
        wanted = level or self.ask.preparedness
        return start.total_s(start.bill(wanted, self.ask.deployment.shape.weight_bytes))


def largest(holds: Callable[[int], bool]) -> int:
    """The largest batch for which `holds`, by bisection up to LARGEST_BATCH; 0 when not even 1."""
    if not holds(1):
        return 0
    low, high = 1, LARGEST_BATCH
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
