"""A fixed number of replicas: the baseline that never starts anything late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from preroll.control.policies.base import bounded
from preroll.core import Decision, Observation, ScaleParameters


@dataclass(slots=True)
class AlwaysOn:
    """Always `max_replicas`."""

    name: ClassVar[str] = "always-on"
    begins_full: ClassVar[bool] = True  # a simulation of it begins with all replicas ready

    def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
        return bounded(parameters.max_replicas, "always on", parameters)
