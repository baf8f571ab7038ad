"""A traffic spike against one warm replica while another starts: backlog and recovery."""

from __future__ import annotations

import math
from dataclasses import dataclass

from preroll.errors import InputError
from preroll.planning.formulas.check import number, positive, whole


@dataclass(frozen=True, slots=True)
class Backlog:
    """Peak requests queued, and seconds from the spike until the queue is empty."""

    peak: float
    recovered_s: float


def backlog(
    rate: float, service_rate: float, start_s: float, ready: int = 1, added: int = 1
) -> Backlog:
    """The triangle of patient clients: peak (λ−rμ)·Tc, recovered at Tc + peak/((r+a)μ − λ).

    `rate` λ and `service_rate` μ of one replica in requests/s; r = `ready` replicas serve, a =
    `added` more do after `start_s` Tc. Valid: λ < (r+a)·μ, so that it can recover; with one and
    one the recovery is μ·Tc/(2μ−λ). Ignores randomness (±√peak) and retries: see
    `retries.outcome`. Source: fluid limit of a queue.
    """
    arrivals, each = positive("rate", rate, 1e9), positive("service_rate", service_rate, 1e9)
    wait = number("start_s", start_s, 0.0, 1e9)
    served = each * whole("ready", ready, 1, 100_000)
    later = served + each * whole("added", added, 1, 100_000)
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
    rate: float, service_rate: float, start_s: float, within_s: float, ready: int = 1
) -> int:
    """Replicas to add at once so that the queue is empty `within_s` after the spike; >= 1.

    Inverse of `backlog`. Valid: within_s > start_s, since nothing helps before the start ends.
    """
    wait, limit = number("start_s", start_s, 0.0, 1e9), positive("within_s", within_s, 1e9)
    if limit <= wait:
        raise InputError(f"within_s is {limit:g}; it must be above the start of {wait:g} s")
    each = positive("service_rate", service_rate, 1e9)
    surplus = positive("rate", rate, 1e9) - each * whole("ready", ready, 1, 100_000)
    share = max(0.0, surplus) / each
    needed = math.ceil(share * limit / (limit - wait))
    return max(1, needed, math.floor(share) + 1)
