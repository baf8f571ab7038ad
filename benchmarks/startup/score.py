"""A profile against the planted truth: what is named, what is right, which lies are seen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from preroll.instruments.startup.base import Cause, Profile

# The labels that lie, and the honest ones between them.
LIES = (
    "loading checkpoint shards",
    "loading weights",
    "compiling kernels",
    "capturing graphs",
    "downloading the tokenizer",
    "importing the models",
    "warming up",
)
HONEST = (
    "importing the live model",
    "importing metrics",
    "sleeping before a retry",
    "building the extension",
    "reading the index",
    "registering plugins",
)
# Seconds on a processor that functions of the worker and bodies of its modules spend, with what
# they call: file and name.
FUNCTIONS = {
    ("dead_encoder.py", "<module>"): 0.8,
    ("live_model.py", "<module>"): 0.2,
    ("unused_metrics.py", "<module>"): 0.4,
    ("worker.py", "computing"): 0.8,
    ("worker.py", "sleeping"): 0.15,
    ("worker.py", "crowded"): 0.5,
}
C_LINES = ("c library: kernels checked", "c library: buffered line")


@dataclass(frozen=True, slots=True)
class Truth:
    """One planted stage: CLOCK_MONOTONIC ns, seconds by cause; `child`: who did the work."""

    name: str
    start_ns: int
    end_ns: int
    causes: Mapping[str, float]
    file: str | None
    child: int | None


@dataclass(frozen=True, slots=True)
class StageScore:
    name: str
    seconds: float
    correct_s: float
    wanted: Mapping[str, float]
    found: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Score:
    """Seconds. Time that no planted stage covers (the interpreter's own start) counts as wrong."""

    total_s: float
    rows_s: float
    named_s: float
    stages: tuple[StageScore, ...]
    lies_missed: tuple[str, ...]
    lies_invented: tuple[str, ...]
    c_lines_missed: tuple[str, ...]
    function_errors: tuple[float, ...]

    @property
    def share_correct(self) -> float:
        return sum(stage.correct_s for stage in self.stages) / self.total_s

    @property
    def share_named(self) -> float:
        return self.named_s / self.total_s

    @property
    def share_planted(self) -> float:
        return sum(stage.seconds for stage in self.stages) / self.total_s


def read_truth(path: Path) -> list[Truth]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Truth(**{k: v for k, v in row.items() if k != "pid"}) for row in rows]


def score(profile: Profile, truths: Sequence[Truth]) -> Score:
    flagged = [label.name for label in profile.labels if label.lie is not None]
    said = [text for _, text in profile.lines]
    return Score(
        total_s=profile.total_s,
        rows_s=sum(profile.causes.values()),
        named_s=profile.total_s - profile.causes.get(Cause.UNKNOWN, 0.0),
        stages=tuple(_stage(profile, truth) for truth in truths),
        lies_missed=tuple(lie for lie in LIES if not _is_in(lie, flagged)),
        lies_invented=tuple(name for name in HONEST if _is_in(name, flagged)),
        c_lines_missed=tuple(line for line in C_LINES if line not in said),
        function_errors=tuple(_function_errors(profile)),
    )


def _function_errors(profile: Profile) -> Iterator[float]:
    """How far each function's time is off, as a share of what it really was."""
    found = {(one.file.rpartition("/")[2], one.name): one.whole_s for one in profile.functions}
    for function, seconds in FUNCTIONS.items():
        yield abs(found.get(function, 0.0) - seconds) / seconds


def _is_in(label: str, names: Sequence[str]) -> bool:
    return any(label in name for name in names)


def _stage(profile: Profile, truth: Truth) -> StageScore:
    """Right is what both say: per cause the smaller of the two. A child's work must be the
    child's, and a file's wait must name the file."""
    found: dict[str, float] = {}
    for one in profile.slices:
        begin, end = max(one.start_ns, truth.start_ns), min(one.end_ns, truth.end_ns)
        if end <= begin:
            continue
        key = str(one.cause)
        if truth.child is not None and one.cause is Cause.CPU and one.pid != truth.child:
            key = "cpu of another process"
        if truth.file is not None and one.cause in (Cause.READ, Cause.FAULT_IO):
            key = key if one.file == truth.file else f"{key} of another file"
        found[key] = found.get(key, 0.0) + (end - begin) / 1e9
    correct = sum(min(s, found.get(cause, 0.0)) for cause, s in truth.causes.items())
    seconds = (truth.end_ns - truth.start_ns) / 1e9
    return StageScore(truth.name, seconds, correct, truth.causes, found)


def lines(score: Score) -> list[str]:
    """A table of the stages for a terminal."""
    shown = []
    for stage in score.stages:
        wanted = ", ".join(f"{c} {s:.3f}" for c, s in stage.wanted.items() if s >= 0.0005)
        found = ", ".join(
            f"{c} {s:.3f}"
            for c, s in sorted(stage.found.items(), key=lambda x: -x[1])
            if s >= 0.0005
        )
        share = stage.correct_s / stage.seconds if stage.seconds else 1.0
        shown.append(f"  {stage.name:<22}{stage.seconds:8.3f} s {share:7.1%}  truth: {wanted}")
        shown.append(f"  {'':<22}{'':>10} {'':>7}  found: {found}")
    return shown
