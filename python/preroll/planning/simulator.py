"""Runs a workload against a policy in the simulator of `preroll._core`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from preroll import _core
from preroll.core import Observation, Policy, ScaleParameters
from preroll.errors import InputError
from preroll.planning.workloads import Workload

SAMPLES = 1000
MAX_REFERENCE = 10_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything but the requests and the policy; the tables are those of crates/sim.

    `start_cost_s` is what a start is worth in seconds of one idle replica; None takes the mean
    start time. `wall_s` is the wall time of time zero, for schedules.
    """

    service: dict[str, Any]
    scale: ScaleParameters
    start: dict[str, Any]
    start_cost_s: float | None = None
    late_s: float | None = None
    queue_limit: int | None = None
    max_wait_s: float | None = None
    client: dict[str, Any] = field(default_factory=dict)
    tick_s: float = 5.0
    devices: int | None = None
    seed: int = 0
    wall_s: float = 0.0

    @property
    def cost_of_start_s(self) -> float:
        if self.start_cost_s is not None:
            return self.start_cost_s
        return max(mean_s(self.start["new_node"]), 1e-3)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one workload. `endpoints` maps names to reports of `_core.Simulation`."""

    policy: str
    endpoints: dict[str, dict[str, Any]]
    optimum_s: float
    start_cost_s: float
    end_s: float
    events: int

    def total(self, key: str) -> float:
        return float(sum(report[key] for report in self.endpoints.values()))

    @property
    def cold_starts(self) -> int:
        return sum(sum(report["starts"]) for report in self.endpoints.values())

    @property
    def late_share(self) -> float:
        """Clients whose first byte came late or never, of those whose fate is known."""
        failed = sum(self.total(key) for key in ("late", "refused", "expired", "timed_out"))
        known = self.total("arrivals") - self.total("in_flight")
        return failed / known if known else 0.0

    @property
    def cost_s(self) -> float:
        """Idle replica-seconds in closed gaps, and the starts at their worth."""
        return self.total("idle_closed_s") + self.cold_starts * self.start_cost_s

    @property
    def cost_over_optimum(self) -> float | None:
        """None when nothing came, so that the optimum is nothing."""
        return self.cost_s / self.optimum_s if self.optimum_s else None

    @property
    def wasted_share(self) -> float:
        """Share of the service that nobody received."""
        service_s = self.total("service_s")
        return self.total("wasted_s") / service_s if service_s else 0.0

    def worst(self, key: str, quantile: str) -> float | None:
        """The largest of a quantile over endpoints; None when no request was served."""
        values = [report[key][quantile] for report in self.endpoints.values()]
        return max((v for v in values if v is not None), default=None)


def mean_s(dist: dict[str, Any]) -> float:
    """Mean of a distribution as crates/sim writes it."""
    if "mean" in dist:
        return float(dist["mean"])
    if "samples" in dist:
        return float(sum(dist["samples"]) / len(dist["samples"]))
    return float(dist["value"]) if "value" in dist else 0.5 * float(dist["low"] + dist["high"])


def simulate(
    workload: Workload, scenario: Scenario, name: str, make: Callable[[], Policy]
) -> Outcome:
    """Runs one policy, an object of its own for each endpoint, and prices the result.

    The same seed gives the same requests to every policy. Raises InputError.
    """
    policies = [make() for _ in workload.arrivals]
    optimum_s = offline_optimum_s(workload, scenario)
    config = _config(workload, scenario)
    if any(getattr(policy, "begins_full", False) for policy in policies):
        for endpoint in config["endpoints"]:
            endpoint["replicas"] = scenario.scale.max_replicas
    config["tick_s"] = scenario.tick_s
    config["tick_when_empty"] = bool(scenario.scale.prewarm) or any(
        getattr(policy, "acts_when_empty", False) for policy in policies
    )
    report = _run(config, workload, _decider(policies, scenario))
    endpoints = dict(zip(workload.arrivals, report["endpoints"], strict=True))
    cost_s = scenario.cost_of_start_s
    return Outcome(name, endpoints, optimum_s, cost_s, report["end_s"], report["events"])


def offline_optimum_s(workload: Workload, scenario: Scenario) -> float:
    """What one who knows the future pays: in every gap the cheaper of idling and a new start.

    The gaps are those of replicas that start in no time, as many as there may be, and of clients
    that wait: per level of demand, exactly (crates/sim/src/levels.rs).
    """
    config = _config(workload, scenario)
    for endpoint in config["endpoints"]:
        endpoint["replicas"] = max(min(scenario.scale.max_replicas, MAX_REFERENCE), 1)
        endpoint["start_cost_s"] = scenario.cost_of_start_s
        endpoint["client"], endpoint["queue_limit"], endpoint["max_wait_s"] = {}, None, None
    config["devices"] = config["sample_s"] = None
    report = _run(config, workload, None)
    return float(sum(e["optimum_s"] for e in report["endpoints"]))


def _config(workload: Workload, scenario: Scenario) -> dict[str, Any]:
    shared = {
        "service": scenario.service,
        "replicas": scenario.scale.min_replicas,
        "start": scenario.start,
        "queue_limit": scenario.queue_limit,
        "max_wait_s": scenario.max_wait_s,
        "client": scenario.client,
        "late_s": scenario.late_s,
    }
    endpoints = [
        {"name": name, "arrivals": arrivals, **shared}
        for name, arrivals in workload.arrivals.items()
    ]
    is_generated = not workload.traces
    return {
        "seed": scenario.seed,
        "end_s": workload.end_s if is_generated else None,
        "sample_s": max(workload.end_s / SAMPLES, 1e-3),
        "devices": scenario.devices,
        "endpoints": endpoints,
    }


def _run(
    config: dict[str, Any], workload: Workload, decide: Callable[..., int] | None
) -> dict[str, Any]:
    try:
        simulation = _core.Simulation(json.dumps(config), workload.traces)
    except ValueError as error:
        raise InputError(f"simulation: {error}") from error
    report: dict[str, Any] = json.loads(simulation.run(decide))
    return report


def _decider(policies: list[Policy], scenario: Scenario) -> Callable[..., int]:
    parameters, wall_s, given = scenario.scale, scenario.wall_s, scenario.start_cost_s

    def decide(
        endpoint: int,
        now_s: float,
        ready: int,
        starting: int,
        in_flight: int,
        queued: int,
        arrivals: int,
        concurrency: float,
        idle_s: float,
        gaps_s: tuple[float, ...],
        start_s: float | None,
    ) -> int:
        observation = Observation(
            now_s,
            wall_s + now_s,
            ready,
            starting,
            in_flight,
            queued,
            arrivals,
            concurrency,
            idle_s,
            gaps_s,
            start_s if given is None else given,
        )
        return policies[endpoint].decide(observation, parameters).replicas

    return decide
