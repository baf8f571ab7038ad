"""Looking more than once at an exact test: group-sequential bounds, computed on sign vectors.

Given the sizes of the differences, all sign vectors are equally likely under the null hypothesis,
also jointly over looks: a sign vector fixes the statistic at every look. So the bound of a look is
found by counting: of the vectors that were not stopped before, the farthest from the centre are
stopped, as many as the spending function allows (Lan and DeMets 1983, the Pocock-type function).
At most `alpha` of all vectors are ever stopped, exactly.

A plan of up to `ENUMERATED` pairs counts every vector. In a longer one a fixed sample of vectors,
the observed one among them, stands for all at every look: under the null hypothesis the observed
vector is exchangeable with the sample, so at most `alpha` holds there exactly too (Dwass 1957).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from preroll.instruments.ablation.exact import ALPHA, distance, doubled_ranks, walsh

ENUMERATED = 16
SAMPLED = 1 << 14
SEED = 20261129
# With fewer pairs a first look could not stop at what may be spent there: 2/2**8 = 0.008.
FIRST_LOOK = 8
LOOK_EVERY = 4
MOST_LOOKS = 6


def looks(most_pairs: int) -> tuple[int, ...]:
    """At how many pairs to look: from the 8th on, at most six times, the last at `most_pairs`.

    Raises ValueError when `most_pairs` is below the first look.
    """
    if most_pairs < FIRST_LOOK:
        raise ValueError(f"{most_pairs} pairs; the first look needs {FIRST_LOOK}")
    rest = most_pairs - FIRST_LOOK
    steps = min(MOST_LOOKS - 1, math.ceil(rest / LOOK_EVERY))
    return (FIRST_LOOK, *(FIRST_LOOK + rest * (i + 1) // steps for i in range(steps)))


def spent(share: float, alpha: float = ALPHA) -> float:
    """What may be spent of `alpha` once `share` (0 to 1) of the pairs are there."""
    return alpha * math.log(1 + (math.e - 1) * share)


@dataclass(frozen=True, slots=True)
class Plan:
    """Looks fixed beforehand; the last is the most pairs that will be made."""

    at: tuple[int, ...]
    alpha: float = ALPHA

    def budget(self, look: int) -> float:
        return spent(self.at[look] / self.at[-1], self.alpha)

    def so_far(self, pairs: int) -> tuple[int, ...]:
        return tuple(n for n in self.at if n <= pairs)


def rejects(differences: Sequence[float], shift: float, plan: Plan) -> bool:
    """Whether any look so far rejects that the true difference is `shift`."""
    values = [d - shift for d in differences]
    positive = [v > 0 for v in values]
    done = plan.so_far(len(values))
    if not done:
        return False
    vectors = None if plan.at[-1] <= ENUMERATED else _sample(positive, done[-1], plan.at[-1])
    stopped = bytearray(1) if vectors is None else bytearray(len(vectors))
    before = 0
    for look, n in enumerate(done):
        ranks2 = doubled_ranks([abs(v) for v in values[:n]])
        if vectors is None:
            stopped *= 1 << (n - before)
        far = _distances(ranks2, vectors)
        bound = _bound(far, stopped, math.floor(plan.budget(look) * len(far) + 1e-9))
        if distance(positive[:n], ranks2) >= bound:
            return True
        for path, value in enumerate(far):
            if value >= bound:
                stopped[path] = 1
        before = n
    return False


def _bound(far: Sequence[int], stopped: bytearray, budget: int) -> float:
    """The least distance at which the vectors stopped so far and here stay within the budget."""
    left = budget - sum(stopped)
    alive = Counter(value for value, gone in zip(far, stopped, strict=True) if not gone)
    bound = math.inf
    for value in sorted(alive, reverse=True):
        left -= alive[value]
        if left < 0:
            break
        bound = value
    return bound


def _distances(ranks2: Sequence[int], vectors: Sequence[int] | None) -> list[int]:
    """The distance of every sign vector; bit i of a vector is the sign of the i-th pair."""
    whole = sum(ranks2)
    if vectors is None:
        return [abs(2 * value - whole) for value in _all_sums(ranks2)]
    tables = [_all_sums(ranks2[at : at + 8]) for at in range(0, len(ranks2), 8)]
    masks = [len(table) - 1 for table in tables]
    return [
        abs(
            2 * sum(t[v >> (8 * i) & m] for i, (t, m) in enumerate(zip(tables, masks, strict=True)))
            - whole
        )
        for v in vectors
    ]


def _all_sums(ranks2: Sequence[int]) -> list[int]:
    sums = [0]
    for rank in ranks2:
        sums += [value + rank for value in sums]
    return sums


def _sample(positive: Sequence[bool], seen: int, most: int) -> list[int]:
    """The observed vector and `SAMPLED` - 1 others, the same at every look."""
    rng = random.Random(SEED)
    observed = sum(1 << i for i, p in enumerate(positive[:seen]) if p)
    return [observed, *(rng.getrandbits(most) for _ in range(SAMPLED - 1))]


def interval(differences: Sequence[float], plan: Plan) -> tuple[float, float] | None:
    """The shifts that no look so far rejects (a repeated confidence interval, Jennison and
    Turnbull 1989): it holds the truth with 1 - alpha whenever and why ever one stops.

    Ends at Walsh averages, where the statistic changes; None before the first look or when no
    shift would be rejected.
    """
    done = plan.so_far(len(differences))
    if not done:
        return None
    seen = list(differences[: done[-1]])
    averages = walsh(seen)
    low = _edge(seen, averages, plan)
    high = _edge([-d for d in seen], [-a for a in reversed(averages)], plan)
    return None if low is None or high is None else (low, -high)


def _edge(seen: Sequence[float], averages: Sequence[float], plan: Plan) -> float | None:
    """The least Walsh average above which shifts are not rejected, by bisection."""
    inside, outside = len(averages) // 2, -1
    if not rejects(seen, averages[0] - 1.0, plan):
        return None
    while inside - outside > 1:
        middle = (inside + outside) // 2
        shift = (averages[middle] + averages[middle + 1]) / 2
        inside, outside = (inside, middle) if rejects(seen, shift, plan) else (middle, outside)
    return averages[inside]
