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
    A replica whose probes have failed for `condemn_after_s` (a stage's `health_timeout`) is
    replaced. `timeout_s` bounds one probe.
    """

    interval_s: float = 5.0
    timeout_s: float = 5.0
    condemn_after_s: float = 30.0

    def within(self, condemn_after_s: float) -> HealthPolicy:
        """The same with another patience; probes come often enough for it."""
        return HealthPolicy(
            min(self.interval_s, condemn_after_s),
            min(self.timeout_s, condemn_after_s),
            condemn_after_s,
        )


@dataclass(slots=True)
class HealthRecord:
    """Probe results of one ready replica. Times: monotonic seconds at which a probe began."""

    policy: HealthPolicy
    failures: int = 0
    failing_since_s: float | None = None

    def succeeded(self) -> None:
        self.failures, self.failing_since_s = 0, None

    def failed(self, began_s: float, now_s: float) -> bool:
        """Notes a failed probe; True when all have failed for too long (two at the least)."""
        self.failures += 1
        if self.failing_since_s is None:
            self.failing_since_s = began_s
        is_too_long = now_s - self.failing_since_s >= self.policy.condemn_after_s
        return is_too_long and self.failures > 1

    def delay_s(self) -> float:
        """Pause before the next probe: shorter while failing, so that a death is seen soon."""
        return self.policy.interval_s if self.failures == 0 else min(1.0, self.policy.interval_s)
