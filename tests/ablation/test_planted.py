"""The benchmark's worker and its score: truths that sum up, and a profile judged by them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from preroll.instruments import startup
from preroll.instruments.ablation import pages
from preroll.instruments.startup.base import Cause, Profile, Segment, Slice

BENCH = Path(__file__).parents[2] / "benchmarks" / "startup"
S = 1_000_000_000


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def profile(*slices: Slice, labels: tuple[Segment, ...] = ()) -> Profile:
    causes: dict[str, float] = {}
    for one in slices:
        causes[one.cause] = causes.get(one.cause, 0.0) + one.seconds
    return Profile(
        ("x",), startup.Outcome.READY, "", "tracefs", "", sum(causes.values()), "2026-11-29",
        causes, labels, slices=slices,
    )  # fmt: skip


@pytest.mark.usefixtures("bench")
def test_right_is_what_profile_and_truth_both_say() -> None:
    import score

    truth = score.Truth("stage", 0, 10 * S, {"cpu": 6.0, "sleep": 4.0}, None, None)
    found = score.score(
        profile(
            Slice(0, 5 * S, Cause.CPU, 1, 1),
            Slice(5 * S, 10 * S, Cause.SLEEP, 1, 1),
            Slice(10 * S, 20 * S, Cause.UNKNOWN, 1, 1),
        ),
        [truth],
    )
    assert found.stages[0].correct_s == 9.0
    assert found.share_correct == 0.45  # what no truth covers counts as wrong
    assert found.share_named == 0.5


@pytest.mark.usefixtures("bench")
def test_a_childs_work_must_be_the_childs_and_a_wait_must_name_its_file() -> None:
    import score

    child = score.Truth("child", 0, 2 * S, {"cpu": 2.0}, None, 7)
    file = score.Truth("file", 2 * S, 4 * S, {"read": 2.0}, "/big", None)
    seen = profile(
        Slice(0, S, Cause.CPU, 7, 7),
        Slice(S, 2 * S, Cause.CPU, 1, 1),
        Slice(2 * S, 3 * S, Cause.READ, 1, 1, file="/big"),
        Slice(3 * S, 4 * S, Cause.READ, 1, 1, file="/other"),
    )
    assert [stage.correct_s for stage in score.score(seen, [child, file]).stages] == [1.0, 1.0]


@pytest.mark.usefixtures("bench")
def test_a_lie_counts_as_found_only_where_it_is_flagged() -> None:
    import score

    labels = (
        Segment("compiling kernels", 0.0, 0.5, {}, lie="says 'compiling': asleep"),
        Segment("reading the index", 0.5, 1.0, {}, lie="says 'reading': computing"),
    )
    found = score.score(profile(Slice(0, S, Cause.CPU, 1, 1), labels=labels), [])
    assert "compiling kernels" not in found.lies_missed
    assert len(found.lies_missed) == len(score.LIES) - 1
    assert found.lies_invented == ("reading the index",)


@pytest.mark.slow
@pytest.mark.usefixtures("bench")
def test_the_planted_worker_is_profiled_as_it_was(tmp_path: Path) -> None:
    """No share is asserted, as the machine may be busy: that is the benchmark's job."""
    import running
    import score
    import surroundings

    place = surroundings.Place(tmp_path, 8 << 20, 1 << 20)
    place.make()
    found = running.profiled(place, "run", python=sys.executable, as_nobody=False)
    truths = score.read_truth(place.folder / "run.truth")
    one = score.score(found, truths)
    assert one.rows_s == pytest.approx(one.total_s)
    assert one.share_planted > 0.9
    assert one.c_lines_missed == ()
    assert "compiling kernels" not in one.lies_missed
    assert sum(sum(truth.causes.values()) for truth in truths) == pytest.approx(
        sum((truth.end_ns - truth.start_ns) / 1e9 for truth in truths), rel=0.02
    )


@pytest.mark.usefixtures("bench")
def test_what_surrounds_the_worker_goes_away_with_it(tmp_path: Path) -> None:
    import surroundings

    place = surroundings.Place(tmp_path, 1 << 20, 1 << 16)
    place.make()
    cold = tmp_path / "cold.bin"
    pages.drop([str(cold)])
    is_on_a_device = pages.resident_bytes(cold) == 0
    cold.read_bytes()
    with surroundings.around(place, "run") as found:
        assert Path(found.env["PLANTED_BURN"]).is_fifo()
        assert not is_on_a_device or pages.resident_bytes(cold) == 0
    assert not Path(found.env["PLANTED_BURN"]).exists()


@pytest.mark.usefixtures("bench")
def test_aa_resamples_go_through_the_real_verdict_and_are_seldom_wrong() -> None:
    import random

    import evidence

    rng = random.Random(2)
    totals = [10 + rng.gauss(0, 0.2) + (2.0 if rng.random() < 0.1 else 0.0) for _ in range(40)]
    share = evidence.false_share(totals, 8, evidence.Question(), 1000)
    assert 0.0 < share <= 0.06
    shifted = [t + 5.0 * (i % 2) for i, t in enumerate(totals)]
    pairs = [evidence.Pair(a, b, {}, {}) for a, b in zip(shifted[1::2], shifted[::2], strict=True)]
    assert evidence.is_called_different(pairs[:8], evidence.Question())
