"""When to probe a replica, and what a series of probes means. Pure; `serve` does the probing."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_DELAY_S = 0.005
MAX_DELAY_S = 0.5
SHARE_OF_ELAPSED = 0.01
"""A start is known to 1 % of its length, and a long one is not disturbed by thousands of probes."""


def start_delay_s(elapsed_s: float) -> float:
    """Pause before the next probe of a replica that has been starting for `elapsed_s`."""
    return min(MAX_DELAY_S, max(FIRST_DELAY_S, SHARE_OF_ELAPSED * elapsed_s))


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Active probing of a ready replica; a busy engine may answer late, so patience is the default.

    The door ejects passively, at once, on failed requests; this is for what fails without traffic.
    """

    interval_s: float = 5.0
    timeout_s: float = 5.0
    condemn_after: int = 6


@dataclass(slots=True)
class HealthRecord:
    """Probe results of one ready replica."""

    policy: HealthPolicy
    failures: int = 0
    last_error: str | None = None

    def succeeded(self) -> None:
        self.failures, self.last_error = 0, None

    def failed(self, error: str) -> bool:
        """Notes one failure; True when the replica has failed too often in a row."""
        self.failures += 1
        self.last_error = error
        return self.failures >= self.policy.condemn_after

    def delay_s(self) -> float:
        """Pause before the next probe: shorter while failing, so that a death is seen soon."""
        return self.policy.interval_s if self.failures == 0 else min(1.0, self.policy.interval_s)
