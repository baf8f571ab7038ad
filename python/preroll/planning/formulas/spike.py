"""A traffic spike against one warm replica while another starts: backlog and recovery."""

from __future__ import annotations

from dataclasses import dataclass

from preroll.errors import InputError
from preroll.planning.formulas.check import number, positive, whole


@dataclass(frozen=True, slots=True)
class Backlog:
    """Peak requests queued, and seconds from the spike until the queue is empty."""

    peak: float
    recovered_s: float


def backlog(rate: float, service_rate: float, start_s: float, added: int = 1) -> Backlog:
    """The triangle of patient clients: peak (λ−μ)·Tc, recovered at Tc + peak/((1+added)μ − λ).

    `rate` λ and `service_rate` μ in requests/s (μ of all replicas that are ready); `added`
    multiples of μ become ready after `start_s` Tc. Valid: μ < λ < (1+added)·μ, so that it can
    recover; with added = 1 the recovery is μ·Tc/(2μ−λ). Ignores randomness (±√peak) and retries:
    see `retries.outcome`. Source: fluid limit of a queue.
    """
    arrivals, served = positive("rate", rate, 1e9), positive("service_rate", service_rate, 1e9)
    wait = number("start_s", start_s, 0.0, 1e9)
    later = served * (1 + whole("added", added, 1, 100_000))
    if arrivals <= served:
        return Backlog(0.0, 0.0)
    if arrivals >= later:
        raise InputError(
            f"rate is {arrivals:g}/s; it must be below {later:g}/s, the capacity after the start,"
            " or the queue never empties: start more replicas"
        )
    peak = (arrivals - served) * wait
    return Backlog(peak, wait + peak / (later - arrivals))


def replicas_to_recover(
    rate: float, service_rate: float, start_s: float, within_s: float
) -> int:
    """Replicas to add at once so that the queue is empty `within_s` after the spike; >= 1.

    Inverse of `backlog`. Valid: within_s > start_s, since nothing helps before the start ends.
    """
    wait, limit = number("start_s", start_s, 0.0, 1e9), positive("within_s", within_s, 1e9)
    if limit <= wait:
        raise InputError(f"within_s is {limit:g}; it must be above the start of {wait:g} s")
    served = positive("service_rate", service_rate, 1e9)
    surplus = max(0.0, positive("rate", rate, 1e9) - served)
    needed = (surplus + surplus * wait / (limit - wait)) / served
    return max(1, int(-(-needed // 1)))
