"""From paired seconds to a verdict: pure functions, the same for a live run and a raw file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from preroll.instruments.ablation import exact, sequential
from preroll.instruments.intervals import z_of
from preroll.quantiles import median

POWER_Z = 0.8416
"""The normal quantile of 80 %: how surely the pairs said to be needed would decide."""


class Outcome(StrEnum):
    """`needed`: the command does not get ready without what was taken away."""

    SAVES = "SAVES"
    COSTS = "COSTS"
    NO_CHANGE = "NO CHANGE"
    INCONCLUSIVE = "INCONCLUSIVE"
    NEEDED = "NEEDED"


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked before the first run.

    `margin`: a share of the control's total; a change that is shown to be smaller is NO CHANGE
    (None: that is never concluded). `plan`: when to look; None is once, at the end.
    """

    segments: tuple[str, ...] = ()
    margin: float | None = None
    plan: sequential.Plan | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Seconds of one control run and one variant run, in total and per registered segment."""

    control_s: float
    variant_s: float
    control_segments_s: Mapping[str, float]
    variant_segments_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Effect:
    """The saving (control minus variant, seconds): positive is faster without the thing changed.

    `p`: two-sided and exact; of a segment adjusted for the number of segments (Holm).
    """

    name: str
    pairs: int
    control_s: float
    variant_s: float
    saving_s: float
    low_s: float | None
    high_s: float | None
    p: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Verdict:
    """`pairs_needed`: how many would decide with 80 % power, for an inconclusive total."""

    total: Effect
    segments: tuple[Effect, ...]
    is_decided: bool
    pairs_needed: int | None


def judge(pairs: Sequence[Pair], question: Question) -> Verdict:
    """Raises ValueError without pairs."""
    control = [pair.control_s for pair in pairs]
    variant = [pair.variant_s for pair in pairs]
    total = _total(control, variant, question)
    found = [_segment(name, pairs) for name in question.segments]
    adjusted = exact.holm([effect.p for effect in found])
    segments = tuple(_with_p(e, p) for e, p in zip(found, adjusted, strict=True))
    decided = total.outcome is not Outcome.INCONCLUSIVE
    needed = None if decided else pairs_needed(_differences(control, variant), question, control)
    return Verdict(total, segments, decided, needed)


def _differences(control: Sequence[float], variant: Sequence[float]) -> list[float]:
    return [c - v for c, v in zip(control, variant, strict=True)]


def _total(control: Sequence[float], variant: Sequence[float], question: Question) -> Effect:
    differences = _differences(control, variant)
    result, plan = exact.paired(differences), question.plan
    if plan is None:
        bounds = exact.interval(differences)
        is_shown = result.p <= exact.ALPHA
    else:
        bounds = sequential.interval(differences, plan)
        is_shown = sequential.rejects(differences, 0.0, plan)
    outcome = _direction(result.estimate) if is_shown else Outcome.INCONCLUSIVE
    limit_s = None if question.margin is None else question.margin * median(control)
    if not is_shown and bounds and limit_s is not None and max(-bounds[0], bounds[1]) < limit_s:
        outcome = Outcome.NO_CHANGE
    low, high = bounds or (None, None)
    return _effect("total", control, variant, result, (low, high), outcome)


def _segment(name: str, pairs: Sequence[Pair]) -> Effect:
    control = [pair.control_segments_s.get(name, 0.0) for pair in pairs]
    variant = [pair.variant_segments_s.get(name, 0.0) for pair in pairs]
    result = exact.paired(_differences(control, variant))
    bounds = (result.low, result.high)
    return _effect(name, control, variant, result, bounds, Outcome.INCONCLUSIVE)


def _effect(
    name: str,
    control: Sequence[float],
    variant: Sequence[float],
    result: exact.Paired,
    bounds: tuple[float | None, float | None],
    outcome: Outcome,
) -> Effect:
    middle = (median(control), median(variant))
    return Effect(name, result.pairs, *middle, result.estimate, *bounds, result.p, outcome)


def _with_p(effect: Effect, p: float) -> Effect:
    outcome = _direction(effect.saving_s) if p <= exact.ALPHA else Outcome.INCONCLUSIVE
    fields = (effect.name, effect.pairs, effect.control_s, effect.variant_s, effect.saving_s)
    return Effect(*fields, effect.low_s, effect.high_s, p, outcome)


def _direction(saving_s: float) -> Outcome:
    return Outcome.SAVES if saving_s > 0 else Outcome.COSTS


def pairs_needed(
    differences: Sequence[float], question: Question, control: Sequence[float]
) -> int | None:
    """How many pairs would decide, if the spread and the effect are as seen so far.

    The usual normal sample size times pi/3 (what ranks cost against means at worst for normal
    differences), with 80 % power: for the effect seen, or for showing that it lies within the
    margin, whichever is fewer. None when the spread is not known yet (fewer than 3 pairs).
    """
    n = len(differences)
    if n < 3:
        return None
    centre = exact.paired(differences).estimate
    spread = math.sqrt(sum((d - centre) ** 2 for d in differences) / (n - 1))
    targets = [abs(centre)]
    if question.margin is not None:
        targets.append(question.margin * median(control) - abs(centre))
    target = max(targets)
    if target <= 0 or spread == 0:
        return None
    size = math.pi / 3 * ((z_of() + POWER_Z) * spread / target) ** 2
    return max(exact.MIN_PAIRS, n + 1, math.ceil(size))
