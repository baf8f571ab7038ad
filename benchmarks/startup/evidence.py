"""The parts of the benchmark that judge what the tools say: truth, A/A, predictions."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import score as scoring
from running import ablated, profiled
from surroundings import Place, python_for_anyone

from preroll.instruments.ablation.raw import RawFile
from preroll.instruments.ablation.sequential import Plan, looks
from preroll.instruments.ablation.verdict import Outcome, Pair, Question, judge

Figures = dict[str, float]
AA_PAIRS = 20
RESAMPLES = 4000
UNTIL_RESAMPLES = 1000  # each computes its bounds anew: 50 ms
SEED = 6
REMOVED = ("dead_encoder", "unused_metrics", "live_model", "shared_ops")
EXCLUSIVE_PROFILES = 3


def truth(place: Place, rounds: int, *, as_nobody: bool) -> Figures:
    """Shares of the start that have a name, and the right one; medians over `rounds`."""
    kind = "user" if as_nobody else "root"
    python = python_for_anyone() if as_nobody else sys.executable
    if python is None:
        print("no Python that a user without rights can start: skipped")
        return {}
    found = []
    for number in range(rounds):
        name = f"{kind}{number}"
        profile = profiled(place, name, python=python, as_nobody=as_nobody)
        one = scoring.score(profile, scoring.read_truth(place.folder / f"{name}.truth"))
        found.append(one)
        print(
            f"{name} ({profile.mode}): {one.share_correct:.1%} right, rows {one.rows_s:.6f} of "
            f"{one.total_s:.6f} s, missed {one.lies_missed}, invented {one.lies_invented}"
        )
        print("\n".join(scoring.lines(one)))
    return {
        f"share_correct_{kind}": statistics.median(one.share_correct for one in found),
        f"share_named_{kind}": statistics.median(one.share_named for one in found),
        f"rows_error_{kind}": max(abs(one.rows_s / one.total_s - 1) for one in found),
        f"lies_planted_{kind}": len(scoring.LIES) * rounds,
        f"lies_missed_{kind}": sum(len(one.lies_missed) for one in found),
        f"lies_invented_{kind}": sum(len(one.lies_invented) for one in found),
        f"function_error_median_{kind}": statistics.median(
            error for one in found for error in one.function_errors
        ),
        f"c_lines_missed_{kind}": sum(len(one.c_lines_missed) for one in found),
    }


def same_against_same(place: Place) -> Figures:
    """Runs of one command recorded as if they were two, and how often resampled pairs of them
    are called different, by the code that makes every verdict."""
    ablated(place, "aa", ["--env=PLANTED_NOTHING=1"], AA_PAIRS)
    _, runs = RawFile.read(place.folder / "aa.raw")
    totals = [run.total_s for run in runs if run.is_sample and run.total_s is not None]
    plan = Plan(looks(12))
    fixed = false_share(totals, 8, Question(), RESAMPLES)
    until = false_share(totals, 12, Question(margin=0.05, plan=plan), UNTIL_RESAMPLES)
    spread = statistics.stdev(totals) / statistics.median(totals)
    return {
        "aa_runs": len(totals),
        "aa_resamples": RESAMPLES,
        "aa_spread": spread,
        "aa_false_share": fixed,
        "aa_false_share_until": until,
    }


def false_share(
    totals_s: Sequence[float], num_pairs: int, question: Question, resamples: int
) -> float:
    """The share of resampled experiments with a difference that cannot be there."""
    rng, wrong = random.Random(SEED), 0
    for _ in range(resamples):
        drawn = rng.sample(list(totals_s), 2 * num_pairs)
        pairs = [Pair(a, b, {}, {}) for a, b in zip(drawn[::2], drawn[1::2], strict=True)]
        wrong += is_called_different(pairs, question)
    return wrong / resamples


def is_called_different(pairs: Sequence[Pair], question: Question) -> bool:
    """As the command does it: judged at every look, stopped at the first that decides."""
    at = question.plan.at if question.plan is not None else (len(pairs),)
    for n in at:
        verdict = judge(pairs[:n], question)
        if verdict.is_decided:
            return verdict.total.outcome in (Outcome.SAVES, Outcome.COSTS)
    return False


def predictions(place: Place, pairs: int) -> Figures:
    """What profiles say that a removal would save, against what the removal saves."""
    profiles = [
        profiled(place, f"imports{n}", python=sys.executable, as_nobody=False, only="imports")
        for n in range(EXCLUSIVE_PROFILES)
    ]
    errors, inclusive_errors, num_right = [], [], 0
    for module in REMOVED:
        costs = [profile.imports[module] for profile in profiles]
        predicted = statistics.median(cost.exclusive_s for cost in costs)
        line = statistics.median(cost.inclusive_s for cost in costs)
        total = ablated(place, module, [f"--without-module={module}"], pairs)["verdict"]["total"]
        saved, low, high = total["saving_s"], total["low_s"], total["high_s"]
        error = abs(predicted - saved) / abs(saved)
        errors.append(error)
        inclusive_errors.append(abs(line - saved) / abs(saved))
        num_right += error <= 0.25 or low <= predicted <= high
        print(
            f"{module:<16} line {line:.3f} s, predicted {predicted:.3f} s, saved {saved:.3f} s "
            f"[{low:.3f}, {high:.3f}]: {error:.0%} off"
        )
    return {
        "exclusive_error_median": statistics.median(errors),
        "exclusive_error_max": max(errors),
        "exclusive_right": num_right,
        "exclusive_tried": len(REMOVED),
        "inclusive_error_median": statistics.median(inclusive_errors),
        "inclusive_error_max": max(inclusive_errors),
    }


def cold_place(folder: Path, cold_bytes: int) -> Place:
    place = Place(folder, cold_bytes, cold_bytes // 8)
    place.make()
    return place
