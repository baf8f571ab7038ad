"""A fixed idle time-out: what most platforms do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from preroll.control.policies.target_concurrency import TargetConcurrency
from preroll.core import Observation, ScaleParameters

DEFAULT_TIMEOUT_S = 600.0


@dataclass(slots=True)
class FixedTimeout(TargetConcurrency):
    """Target concurrency; the last replica goes `idle_timeout_s` after the end of all work.

    The time-out is the stage's `scale.idle_timeout`, else `timeout_s` seconds.
    """

    name: ClassVar[str] = "fixed-timeout"
    timeout_s: float = DEFAULT_TIMEOUT_S

    def idle_timeout_s(self, observation: Observation, parameters: ScaleParameters) -> float:
        given = parameters.idle_timeout_s
        return self.timeout_s if given is None else given
