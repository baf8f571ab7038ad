"""The loop of an experiment, with a runner whose truth is known."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from preroll.core import Phase, Start, Wait
from preroll.engines.bill import Line
from preroll.errors import InputError, UnavailableError
from preroll.instruments.ablation import segments, sequential, verdict
from preroll.instruments.ablation.launch import Ran
from preroll.instruments.ablation.measure import (
    Design,
    Experiment,
    NeededError,
    order,
    pairs_of,
    samples_of,
)
from preroll.instruments.ablation.raw import Arm, RawFile, Run
from preroll.instruments.ablation.reads import Reads
from preroll.instruments.ablation.report import report
from preroll.instruments.ablation.state import Cache, Keeper
from preroll.instruments.ablation.text import report_lines
from preroll.instruments.ablation.verdict import Outcome, Question
from preroll.instruments.raw_lines import Header

S = 1_000_000_000
MIB = 1 << 20


def ran(total_s: float, read_bytes: int = 0) -> Ran:
    end = round(total_s * S)
    phases = (Phase(Wait.INIT, "spawn", 0, S), Phase(Wait.LOAD, "weights 3", S, end))
    lines = [Line(S, "loading"), Line(2 * S, "loaded")]
    return Ran(Start("r", "s", 0, end, phases), lines, Reads(read_bytes, 0))


@dataclass
class Runner:
    """Control takes 10 s, the variant `saving_s` less, both with noise; some runs go wrong."""

    saving_s: float = 1.0
    spread_s: float = 0.1
    wrong: set[int] = field(default_factory=set)
    failing: set[int] = field(default_factory=set)
    interrupted_at: int = 10**9
    calls: list[Arm] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    async def run(self, arm: Arm, *, is_watched: bool = False) -> Ran:
        self.calls.append(arm)
        number = len(self.calls)
        if number == self.interrupted_at:
            raise KeyboardInterrupt
        if number in self.failing:
            raise UnavailableError(f"run {number} ended with status 1")
        total = 10.0 + self.rng.gauss(0, self.spread_s)
        saving = self.saving_s if arm is Arm.VARIANT else 0.0
        return ran(total - saving, 50 * MIB if number in self.wrong else 0)


def new_raw(path: Path) -> RawFile:
    return RawFile(path, Header({"argv": ["x"]}, {}))


def experiment(
    runner: Runner, raw: RawFile, pairs: int = 6, question: Question | None = None, *names: str
) -> list[Run]:
    question = question or Question(segments=names)
    found = tuple(segments.parse(name) for name in names)
    design = Design(pairs, 1, found, question)
    seen: list[Run] = []
    running = Experiment(design, runner, Keeper(Cache.WARM), raw, seen.append)
    asyncio.run(running.run(lambda _: None))
    return seen


def test_pairs_are_interleaved_in_random_order(tmp_path: Path) -> None:
    runner = Runner()
    experiment(runner, new_raw(tmp_path / "raw"), 12)
    samples = runner.calls[2:]
    orders = [tuple(samples[i : i + 2]) for i in range(0, len(samples), 2)]
    assert all(set(pair) == set(Arm) for pair in orders)
    assert len(set(orders)) == 2
    assert orders == [order(1, pair) for pair in range(1, 13)]


def test_a_run_from_the_wrong_state_is_kept_aside_and_repeated(tmp_path: Path) -> None:
    raw = new_raw(tmp_path / "raw")
    runs = experiment(Runner(wrong={4, 9}), raw)
    assert [run.discarded for run in runs if run.discarded] == [
        "not warm: its processes read 50.0 MiB from a device"
    ] * 2
    assert len(samples_of(raw.samples)) == 6
    shown = report(raw.samples, Question(), change="--env A=1", cache="warm")
    assert shown.num_discarded == 2
    assert "discarded and repeated: 2 runs" in "\n".join(report_lines(shown))


def test_a_state_that_cannot_be_had_ends_it_with_what_there_is(tmp_path: Path) -> None:
    raw = new_raw(tmp_path / "raw")
    with pytest.raises(UnavailableError, match=r"4 runs in a row .* not warm"):
        experiment(Runner(wrong=set(range(7, 99))), raw)
    assert len(pairs_of(raw.samples)) == 2


def test_a_variant_that_does_not_get_ready_is_needed(tmp_path: Path) -> None:
    raw = new_raw(tmp_path / "raw")
    with pytest.raises(NeededError, match="status 1"):
        experiment(Runner(failing={2, 3}), raw)
    shown = report(raw.samples, Question(), change="x", cache="warm", needed="ended with status 1")
    assert shown.outcome is Outcome.NEEDED
    assert "does not get ready" in "\n".join(report_lines(shown))


def test_one_failure_of_a_variant_is_not_enough(tmp_path: Path) -> None:
    raw = new_raw(tmp_path / "raw")
    experiment(Runner(failing={2}), raw)
    assert len(pairs_of(raw.samples)) == 6
    assert [run.failure for run in raw.samples if run.failure] == ["run 2 ended with status 1"]


def test_a_variant_that_stops_getting_ready_is_not_called_needed(tmp_path: Path) -> None:
    raw = new_raw(tmp_path / "raw")
    first = next(i for i in range(3, 99) if order(1, (i - 1) // 2)[(i - 1) % 2] is Arm.VARIANT)
    with pytest.raises(UnavailableError, match="was ready 1 times") as error:
        experiment(Runner(failing={first, first + 1}), raw)
    assert not isinstance(error.value, NeededError)


def test_a_control_that_fails_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="control did not get ready"):
        experiment(Runner(failing={1}), new_raw(tmp_path / "raw"))


def test_an_interrupted_experiment_is_valid_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    raw = new_raw(path)
    with pytest.raises(KeyboardInterrupt):
        experiment(Runner(interrupted_at=10), raw)
    raw.close()
    with path.open("ab") as file:
        file.write(b'{"pair": 4, "arm": "con')  # a line cut off by a crash
    again = RawFile.resume(path)
    before = pairs_of(again.samples)
    assert len(before) == 3
    experiment(Runner(), again)
    after = pairs_of(again.samples)
    assert after[:3] == before and len(after) == 6
    assert RawFile.read(path)[1] == again.samples


def test_it_stops_at_the_first_look_that_decides(tmp_path: Path) -> None:
    plan = sequential.Plan(sequential.looks(20))
    question = Question(margin=0.05, plan=plan)
    raw = new_raw(tmp_path / "raw")
    experiment(Runner(saving_s=2.0), raw, 20, question)
    assert len(pairs_of(raw.samples)) == 8
    same = new_raw(tmp_path / "same")
    experiment(Runner(saving_s=0.0), same, 20, question)
    found = verdict.judge(pairs_of(same.samples), question)
    assert found.total.outcome is Outcome.NO_CHANGE
    noisy = new_raw(tmp_path / "noisy")
    experiment(Runner(saving_s=0.0, spread_s=3.0), noisy, 12, question)
    assert len(pairs_of(noisy.samples)) == 12


def test_registered_segments_are_tested_and_grown_phases_shown(tmp_path: Path) -> None:
    raw = new_raw(tmp_path / "raw")
    names = ("load", "loading..loaded", "weights")
    experiment(Runner(saving_s=2.0), raw, 6, None, *names)
    shown = report(raw.samples, Question(segments=names), change="--env A=1", cache="warm")
    assert shown.verdict is not None
    load, between, label = shown.verdict.segments
    assert load.saving_s == label.saving_s == pytest.approx(2.0, abs=0.2)
    assert between.saving_s == 0.0
    assert between.outcome is Outcome.INCONCLUSIVE
    assert [(m.name, round(m.grew_s)) for m in shown.moved] == [("weights #", -2)]


def test_a_segment_that_the_control_has_not_is_refused_at_once(tmp_path: Path) -> None:
    runner = Runner()
    with pytest.raises(InputError, match=r"'compile': the control has none; its phases: spawn"):
        experiment(runner, new_raw(tmp_path / "raw"), 6, None, "compile")
    assert len(runner.calls) == 1


def test_another_file_is_not_overwritten_or_believed(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    new_raw(path)
    with pytest.raises(InputError, match="--resume"):
        new_raw(path)
    path.write_text(json.dumps({"format": "preroll starts 1"}) + "\n")
    with pytest.raises(InputError, match="not a file of preroll ablate"):
        RawFile.resume(path)
