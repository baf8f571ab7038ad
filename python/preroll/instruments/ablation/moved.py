"""Where the cost went: phases that grew over the pairs, imports that grew between two profiles.

None of this is a verdict: only the total and registered segments are tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preroll.instruments.ablation.exact import walsh
from preroll.instruments.ablation.raw import Run
from preroll.instruments.startup.base import Profile
from preroll.quantiles import median

# A change below this share of the control's start is not worth a row.
LEAST_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class Moved:
    """`grew_s` is variant minus control: what became dearer without the thing, or (negative)
    cheaper. `kind`: phase or import."""

    kind: str
    name: str
    control_s: float
    variant_s: float
    grew_s: float


def phases(samples: Sequence[tuple[Run, Run]]) -> list[Moved]:
    """Per phase the Hodges-Lehmann estimate of its paired differences, the largest first."""
    names = dict.fromkeys(n for pair in samples for run in pair for n in run.phases_s)
    rows: list[Moved] = []
    for name in names if len(names) > 1 else ():  # the only phase is the total
        before = [control.phases_s.get(name, 0.0) for control, _ in samples]
        after = [variant.phases_s.get(name, 0.0) for _, variant in samples]
        grew = median(walsh([a - b for a, b in zip(after, before, strict=True)]))
        rows.append(Moved("phase", name, median(before), median(after), grew))
    return _worth_a_row(rows, median([c.total_s or 0.0 for c, _ in samples])) if samples else []


def imports(control: Profile, variant: Profile) -> list[Moved]:
    """Per package its exclusive seconds in one hooked run of each arm, the largest first."""
    before, after = _exclusive(control), _exclusive(variant)
    rows = [
        Moved("import", name, before.get(name, 0.0), after.get(name, 0.0), change)
        for name in dict.fromkeys((*before, *after))
        if (change := after.get(name, 0.0) - before.get(name, 0.0))
    ]
    return _worth_a_row(rows, control.total_s)


def _exclusive(profile: Profile) -> Mapping[str, float]:
    return {name: cost.exclusive_s for name, cost in profile.imports.items()}


def _worth_a_row(rows: list[Moved], total_s: float) -> list[Moved]:
    kept = [row for row in rows if abs(row.grew_s) >= LEAST_SHARE * total_s]
    return sorted(kept, key=lambda row: row.grew_s, reverse=True)
