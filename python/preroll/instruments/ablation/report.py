"""The whole result of an experiment: computed from the raw runs, shown by text and JSON alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from preroll.instruments.ablation.measure import pairs_of, samples_of
from preroll.instruments.ablation.moved import Moved, phases
from preroll.instruments.ablation.predict import Prediction
from preroll.instruments.ablation.raw import Arm, Run
from preroll.instruments.ablation.verdict import Outcome, Question, Verdict, judge


@dataclass(frozen=True, slots=True)
class Report:
    """`verdict` is None before the first whole pair, and where the variant does not get ready
    (`needed` then has its failure)."""

    change: str
    cache: str
    question: Question
    verdict: Verdict | None
    moved: tuple[Moved, ...]
    num_discarded: int
    discarded: tuple[str, ...]
    read_bytes: dict[str, tuple[int, ...]]
    major_faults: dict[str, tuple[int, ...]]
    prediction: Prediction | None = None
    needed: str | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def outcome(self) -> Outcome:
        if self.needed is not None:
            return Outcome.NEEDED
        return self.verdict.total.outcome if self.verdict else Outcome.INCONCLUSIVE


def report(
    runs: Sequence[Run],
    question: Question,
    *,
    change: str,
    cache: str,
    prediction: Prediction | None = None,
    imports: Sequence[Moved] = (),
    needed: str | None = None,
    notes: Sequence[str] = (),
) -> Report:
    pairs, samples = pairs_of(runs), samples_of(runs)
    discarded = [run.discarded for run in runs if run.discarded]
    by_arm = {arm: [pair[i] for pair in samples] for i, arm in enumerate(Arm)}
    return Report(
        change=change,
        cache=cache,
        question=question,
        verdict=judge(pairs, question) if pairs and needed is None else None,
        moved=(*phases(samples), *imports),
        num_discarded=len(discarded),
        discarded=tuple(dict.fromkeys(discarded)),
        read_bytes={arm: tuple(r.read_bytes for r in found) for arm, found in by_arm.items()},
        major_faults={arm: tuple(r.major_faults for r in found) for arm, found in by_arm.items()},
        prediction=prediction,
        needed=needed,
        notes=tuple(notes),
    )
