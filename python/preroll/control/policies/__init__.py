"""Scaling policies: one file each, all of them `core.Policy`, run by `serve` and by `simulate`.

`policy_for(parameters)` gives the one that `preroll serve` uses for a stage. Make one object per
stage: a policy keeps its memory in itself.
"""

from __future__ import annotations

from collections.abc import Callable

from preroll.control.policies.always_on import AlwaysOn
from preroll.control.policies.fixed_timeout import FixedTimeout
from preroll.control.policies.hybrid_histogram import HybridHistogram
from preroll.control.policies.keda_like import KedaLike
from preroll.control.policies.knative_like import KnativeLike
from preroll.control.policies.learned_schedule import LearnedSchedule
from preroll.control.policies.ray_serve_like import RayServeLike
from preroll.control.policies.ski_rental import SkiRental
from preroll.control.policies.target_concurrency import TargetConcurrency
from preroll.core import Policy, ScaleParameters
from preroll.errors import InputError

POLICIES: dict[str, Callable[[], Policy]] = {
    SkiRental.name: SkiRental,
    FixedTimeout.name: FixedTimeout,
    HybridHistogram.name: HybridHistogram,
    LearnedSchedule.name: LearnedSchedule,
    TargetConcurrency.name: TargetConcurrency,
    KnativeLike.name: KnativeLike,
    RayServeLike.name: RayServeLike,
    KedaLike.name: KedaLike,
    AlwaysOn.name: AlwaysOn,
}

__all__ = [
    "POLICIES",
    "AlwaysOn",
    "FixedTimeout",
    "HybridHistogram",
    "KedaLike",
    "KnativeLike",
    "LearnedSchedule",
    "RayServeLike",
    "SkiRental",
    "TargetConcurrency",
    "policy_for",
    "policy_named",
]


def policy_for(parameters: ScaleParameters) -> Policy:
    """A new policy for one stage: ski rental when `idle_timeout` is `auto`, else the fixed one."""
    return SkiRental() if parameters.idle_timeout_s is None else FixedTimeout()


def policy_named(name: str) -> Policy:
    """A new policy by its name in `POLICIES`; InputError names the others when it is unknown."""
    make = POLICIES.get(name)
    if make is None:
        raise InputError(f"policy '{name}' is unknown; there are {', '.join(POLICIES)}")
    return make()
