"""Queues: M/M/1, Pollaczek–Khinchine, Erlang C, an M/G/k approximation, utilisation target."""

from __future__ import annotations

import math

from preroll.errors import InputError
from preroll.planning.formulas.check import number, positive, whole

FULL = 1.0 - 1e-9


def utilisation(rate: float, service_s: float, servers: int = 1) -> float:
    """rate·S/k: dimensionless; `rate` requests/s, `service_s` mean seconds of one slot.

    May exceed 1: then no steady state exists and the queue grows without bound.
    """
    k = whole("servers", servers, 1, 10**6)
    return number("rate", rate, 0.0, 1e9) * positive("service_s", service_s, 1e9) / k


def _load(rho: float) -> float:
    value = number("utilisation", rho, 0.0, 1e9)
    if value >= FULL:
        raise InputError(f"utilisation is {value:g}; a steady state needs less than 1")
    return value


def mm1_stretch(rho: float) -> float:
    """Mean time in system over mean service time in M/M/1 = 1/(1-ρ).

    Valid: 0 <= ρ < 1, Poisson arrivals, exponential service, one server, first come first served.
    Source: Kleinrock, Queueing Systems I (1975), ch. 3. Gives 2, 5, 10, 20 at .5, .8, .9, .95.
    """
    return 1.0 / (1.0 - _load(rho))


def variance_factor(cs: float) -> float:
    """(1 + Cs²)/2: waiting against exponential service at equal load (Pollaczek–Khinchine).

    `cs`: standard deviation over mean of the service time. Fixed-length service has factor 1/2,
    so Cs = 2 waits 2.5 × exponential and 5 × fixed-length. Source: Khintchine (1932).
    """
    return (1.0 + number("cs", cs, 0.0, 1e3) ** 2) / 2.0


def mg1_wait_s(rho: float, service_s: float, cs: float) -> float:
    """Mean wait in queue of M/G/1: ρ/(1-ρ)·(1+Cs²)/2·S, in seconds. Exact for Poisson arrivals,
    one server, FIFO. Ignores batching and correlated arrivals."""
    load = _load(rho)
    return load / (1.0 - load) * variance_factor(cs) * positive("service_s", service_s, 1e9)


def erlang_c(rho: float, servers: int) -> float:
    """P(an arrival waits) in M/M/k at utilisation `rho` per server.

    Valid: 0 <= ρ < 1, 1 <= k <= 100,000. By the Erlang-B recursion, which does not overflow.
    Source: Erlang (1917).
    """
    load = _load(rho)
    k = whole("servers", servers, 1, 100_000)
    blocking = 1.0
    for n in range(1, k + 1):
        blocking = load * k * blocking / (n + load * k * blocking)
    return blocking / (1.0 - load * (1.0 - blocking))


def mgk_wait_s(rho: float, service_s: float, cs: float, servers: int, ca: float = 1.0) -> float:
    """Mean wait of G/G/k: Erlang C·S/(k(1-ρ)) times (Ca²+Cs²)/2, in seconds.

    `ca`: coefficient of variation of the arrival gaps (1 is Poisson). Exact for M/M/k and M/G/1;
    elsewhere typically within 10 % at ρ > 0.5 and moderate Cs; it fails for Cs far above 3, where
    the wait depends on more than two moments. Source: Allen–Cunneen (1978), after Lee–Longton.
    """
    k = whole("servers", servers, 1, 100_000)
    waits = erlang_c(rho, k) * positive("service_s", service_s, 1e9) / (k * (1.0 - rho))
    return waits * (number("ca", ca, 0.0, 1e3) ** 2 + number("cs", cs, 0.0, 1e3) ** 2) / 2.0


def mgk_wait_quantile_s(
    rho: float, service_s: float, cs: float, servers: int, q: float, ca: float = 1.0
) -> float:
    """The q-quantile of the wait of G/G/k: max(0, ln(C/(1−q)))·E[W | waits], in seconds.

    C is Erlang C; a request that waits is taken to wait exponentially, with the mean of
    `mgk_wait_s` given that it waits. Exact for M/M/k; for heavy tails (Cs above 2) far quantiles
    are longer. Valid: 0 < q < 1. Source: M/M/k's conditional wait, scaled by Allen–Cunneen.
    """
    share = positive("quantile", q, 1.0 - 1e-9)
    waits = erlang_c(rho, servers)
    if waits <= 1.0 - share:
        return 0.0
    mean_if_waits = mgk_wait_s(rho, service_s, cs, servers, ca) / waits
    return math.log(waits / (1.0 - share)) * mean_if_waits


def utilisation_target(
    max_wait_s: float, service_s: float, cs: float, servers: int, ca: float = 1.0, q: float = 0.95
) -> float:
    """The highest utilisation whose q-quantile of the wait stays within `max_wait_s`.

    Bisection to 1e-6. Valid and ignoring as `mgk_wait_quantile_s`.
    """
    limit = number("max_wait_s", max_wait_s, 0.0, 1e9)
    low, high = 0.0, FULL - 1e-9
    while high - low > 1e-6:
        middle = (low + high) / 2.0
        if mgk_wait_quantile_s(middle, service_s, cs, servers, q, ca) <= limit:
            low = middle
        else:
            high = middle
    return low
