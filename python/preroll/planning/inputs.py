"""What is asked of a plan: the deployment, the traffic, the targets, the clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from preroll.core import Measurement, Preparedness, Slo
from preroll.errors import InputError
from preroll.planning.deployment import Deployment
from preroll.planning.formulas.check import number, positive, whole

STAGE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
LONG_GAP_S = 600.0
"""An endpoint that was never quiet for ten minutes gains nothing from scaling to zero."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What arrives. `rate` requests/s; isl, osl mean input and output tokens; `cs`, `ca`:
    coefficients of variation of service time and of arrival gaps; `gaps_s` observed gaps between
    arrivals (empty: none were given); `source`: where the numbers come from, for the page."""

    rate: float = 1.0
    isl: float = 1000.0
    osl: float = 200.0
    cs: float = 1.0
    ca: float = 1.0
    gaps_s: Sequence[float] = ()
    source: str = "assumed"

    def __post_init__(self) -> None:
        positive("traffic rate", self.rate, 1e6)
        number("traffic in", self.isl, 1.0, 1e7)
        number("traffic out", self.osl, 1.0, 1e7)
        number("traffic cs", self.cs, 0.0, 100.0)
        number("traffic ca", self.ca, 0.0, 100.0)


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the planner. `price` per device and hour in any currency, None unknown;
    `spike` multiplies the rate; `timeout_s`, `retries`: the clients'; `calls` per user action;
    `nodes`: how many nodes there are for one replica each, None when that is to be found."""

    deployment: Deployment
    traffic: Traffic
    slo: Slo = field(default_factory=Slo)
    preparedness: Preparedness = Preparedness.LOCAL_WEIGHTS
    stage: str = "model"
    model_reference: str = ""
    spike: float = 3.0
    timeout_s: float = 60.0
    retries: int = 2
    calls: int = 20
    price: float | None = None
    measurements: Sequence[Measurement] = field(default=())
    nodes: int | None = None

    def __post_init__(self) -> None:
        if not STAGE_NAME.fullmatch(self.stage):
            raise InputError(f"--stage is {self.stage!r}; allowed: at most 63 of a-z, 0-9, - and _")
        number("spike", self.spike, 1.0, 1e4)
        positive("client timeout", self.timeout_s, 1e6)
        whole("retries", self.retries, 0, 100)
        whole("calls", self.calls, 1, 10**6)
        if self.nodes is not None:
            whole("nodes", self.nodes, 1, 10**6)
        if self.price is not None:
            positive("price", self.price, 1e6)

    @property
    def may_sleep(self) -> bool:
        """Whether gaps were seen that outlast a start: only then does scaling to zero save."""
        return any(gap > LONG_GAP_S for gap in self.traffic.gaps_s)

    def measured(self, *kinds: str) -> Measurement | None:
        """The newest measurement of this stage of one of `kinds`."""
        mine = [m for m in self.measurements if m.stage == self.stage and m.kind in kinds]
        return max(mine, key=lambda m: m.date, default=None)
