"""The experiment: rehearsals, then pairs in random order, each run from a proved state."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from preroll.errors import InputError, UnavailableError
from preroll.instruments.ablation import segments as parts
from preroll.instruments.ablation.launch import Ran
from preroll.instruments.ablation.raw import Arm, RawFile, Run
from preroll.instruments.ablation.state import Evidence, Keeper
from preroll.instruments.ablation.verdict import Pair, Question, judge

# Runs from a wrong state are repeated so often in a row; then the machine is at fault.
MAX_WRONG = 4
# A variant that fails twice in a row will fail a third time.
MAX_FAILURES = 2


class Runner(Protocol):
    """Makes one run of an arm; UnavailableError says why it did not get ready."""

    async def run(self, arm: Arm, *, is_watched: bool = False) -> Ran: ...


class NeededError(UnavailableError):
    """The variant does not get ready: what was taken away is needed. The message: its failure."""


@dataclass(frozen=True, slots=True)
class Design:
    """Fixed before the first run. `pairs`: how many, at most where `question` has a plan."""

    pairs: int
    seed: int
    segments: tuple[parts.Segment, ...]
    question: Question


class Experiment:
    """Runs pairs until the design is fulfilled; everything is in the raw file at once."""

    def __init__(
        self,
        design: Design,
        runner: Runner,
        keeper: Keeper,
        raw: RawFile,
        on_each: Callable[[Run], None],
    ) -> None:
        self._design = design
        self._runner = runner
        self._keeper = keeper
        self._raw = raw
        self._on_each = on_each

    async def run(self, learn: Callable[[set[str]], None]) -> None:
        """Rehearses, then makes the pairs that the raw file lacks.

        `learn` is told the files that a first run had open. Raises NeededError when the variant
        does not get ready, UnavailableError when the control does not or the state cannot be
        proved, InputError when the experiment cannot be what was asked for.
        """
        await self._rehearse(learn)
        while not self.is_done():
            number = max((run.pair for run in self._raw.samples), default=0) + 1
            for arm in order(self._design.seed, number):
                await self._sample(number, arm)

    def is_done(self) -> bool:
        done, plan = pairs_of(self._raw.samples), self._design.question.plan
        if len(done) >= self._design.pairs:
            return True
        return (
            plan is not None
            and len(done) in plan.at
            and judge(done, self._design.question).is_decided
        )

    async def _rehearse(self, learn: Callable[[set[str]], None]) -> None:
        """Runs that are no samples: they show which files there are, and warm what is warm.

        For a cold start each arm has two: the first shows what may be read, the second, from
        there dropped, what is.
        """
        for arm in Arm:
            ran = await self._try(0, arm, is_watched=True)
            learn(ran.seen)
            if arm is Arm.CONTROL:
                self._check_segments(ran)
        if self._keeper.learns_twice:
            self._keeper.prepare()
            for arm in Arm:
                await self._try(0, arm)
            self._keeper.learn_files()

    def _check_segments(self, ran: Ran) -> None:
        for segment in self._design.segments:
            if parts.seconds(segment, ran.start, ran.lines, ran.reads.cpu_s) is None:
                there = ", ".join(parts.phases(ran.start))
                raise InputError(
                    f"--segment {segment.name!r}: the control has none; its phases: {there}"
                )

    async def _try(self, pair: int, arm: Arm, *, is_watched: bool = False) -> Ran:
        """One run, begun anew when a variant fails once. A run that fails is written too."""
        for attempt in range(1, MAX_FAILURES + 1):
            try:
                ran = await self._runner.run(arm, is_watched=is_watched)
            except UnavailableError as error:
                self._note(Run(pair, arm, now(), failure=str(error)))
                if arm is Arm.CONTROL:
                    raise UnavailableError(f"the control did not get ready\n{error}") from None
                if attempt == MAX_FAILURES:
                    raise self._failed(str(error)) from None
            else:
                if pair == 0:
                    self._note(self._record(0, arm, ran, None))
                return ran
        raise AssertionError("unreachable")

    def _failed(self, failure: str) -> UnavailableError:
        """A variant that was ready before is unreliable; one that never was needs the thing."""
        ready = sum(run.arm is Arm.VARIANT and run.total_s is not None for run in self._raw.samples)
        if ready == 0:
            return NeededError(failure)
        return UnavailableError(f"the variant was ready {ready} times, and then no more\n{failure}")

    async def _sample(self, pair: int, arm: Arm) -> None:
        for _ in range(MAX_WRONG):
            resident = self._keeper.prepare()
            ran = await self._try(pair, arm)
            wrong = self._keeper.why_not_proved(
                arm, Evidence(resident, ran.reads, ran.start.total_s)
            )
            run = self._record(pair, arm, ran, resident)
            self._note(replace(run, discarded=wrong))
            if wrong is None:
                return
        raise UnavailableError(
            f"{MAX_WRONG} runs in a row did not start from the state asked for; the last: {wrong}. "
            f"The samples so far are in {self._raw.path}"
        )

    def _record(self, pair: int, arm: Arm, ran: Ran, resident: int | None) -> Run:
        return Run(
            pair,
            arm,
            now(),
            total_s=ran.start.total_s,
            segments_s=parts.measured(self._design.segments, ran.start, ran.lines, ran.reads.cpu_s),
            phases_s=parts.phases(ran.start),
            read_bytes=ran.reads.read_bytes,
            major_faults=ran.reads.major_faults,
            resident_bytes=resident,
        )

    def _note(self, run: Run) -> None:
        self._raw.append(run)
        self._on_each(run)


def order(seed: int, pair: int) -> tuple[Arm, Arm]:
    """Which arm goes first in a pair: a fair coin, the same for the same seed."""
    arms = (Arm.CONTROL, Arm.VARIANT)
    return arms if random.Random(f"{seed} {pair}").random() < 0.5 else (arms[1], arms[0])


def samples_of(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """The control and variant run of every whole pair, in order."""
    found: dict[int, dict[Arm, Run]] = {}
    for run in runs:
        if run.is_sample:
            found.setdefault(run.pair, {})[run.arm] = run
    whole = (by_arm for _, by_arm in sorted(found.items()) if len(by_arm) == len(Arm))
    return [(by_arm[Arm.CONTROL], by_arm[Arm.VARIANT]) for by_arm in whole]


def pairs_of(runs: Sequence[Run]) -> list[Pair]:
    return [
        Pair(c.total_s or 0.0, v.total_s or 0.0, c.segments_s, v.segments_s)
        for c, v in samples_of(runs)
    ]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
