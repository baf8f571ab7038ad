"""Starts as text: bars that sum, silences that are named, quantiles that are refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from preroll.core import Gap, Phase, Start, Wait
from preroll.instruments.starts_text import (
    BAR_WIDTH,
    apportion,
    bars,
    distribution,
    gap,
    one_start,
    waits_over,
)


def start(*phases: tuple[Wait, int], silence: Gap | None = None) -> Start:
    made, t = [], 0
    for wait, lasted in phases:
        made.append(Phase(wait, f"{wait} words", t, t + lasted))
        t += lasted
    return Start("chat-1", "chat", 0, t, tuple(made), gap=silence)


phases = st.lists(st.tuples(st.sampled_from(Wait), st.integers(0, 10**12)), min_size=1, max_size=8)


@given(phases)
def test_the_shown_seconds_and_the_bars_sum_to_the_total(parts: list[tuple[Wait, int]]) -> None:
    made = start(*parts)
    *rows, total = bars(made)
    seconds = [row.rpartition(" s ")[0].split()[-1] for row in rows]
    milliseconds = sum(round(float(s) * 1000) for s in seconds)
    assert milliseconds == (round(made.total_s * 1000) if rows else 0)
    assert total.split()[-2] == f"{round(made.total_s * 1000) / 1000:.3f}"
    assert sum(row.count("█") for row in rows) == (BAR_WIDTH if rows else 0)


@given(st.lists(st.integers(0, 10**15), max_size=9), st.integers(0, 1000))
def test_shares_are_whole_and_sum(parts: list[int], total: int) -> None:
    shares = apportion(parts, total)
    assert sum(shares) == (total if any(parts) else 0)
    assert all(share >= 0 for share in shares)


def test_what_is_left_goes_to_the_largest_remainders() -> None:
    assert apportion([10, 25, 65], 4) == [0, 1, 3]
    assert apportion([1, 1, 1], 2) == [1, 1, 0]


def test_waits_are_shown_in_the_order_of_a_start_and_summed() -> None:
    rows = bars(start((Wait.INIT, 10**9), (Wait.LOAD, 2 * 10**9), (Wait.INIT, 10**9)))
    assert [row.split()[0] for row in rows] == ["init", "load", "total"]
    assert "2.000 s  50.0%" in rows[0]


def test_the_longest_silence_is_named_when_it_matters() -> None:
    silence = Gap(0, 1_200_000_000, "Loading weights took 2 s")
    assert gap(start((Wait.INIT, 2 * 10**9), silence=silence)) == (
        "1.2 s after 'Loading weights took 2 s' with no output"
    )
    assert gap(start((Wait.INIT, 10**12), silence=silence)) is None
    assert gap(start((Wait.INIT, 10**9))) is None


def test_every_phase_is_shown_with_its_words_on_demand() -> None:
    made = start((Wait.INIT, 10**9), (Wait.LOAD, 10**9))
    assert "load words" not in "\n".join(one_start(made))
    assert "load words" in "\n".join(one_start(made, with_phases=True))


def test_a_distribution_shows_what_its_number_of_starts_supports() -> None:
    text = "\n".join(distribution([4.94, 4.42, 20.17]))
    assert "median  4.940 s" in text
    assert "min     4.420 s" in text
    assert "max     20.170 s" in text
    assert "p90     refused: it needs at least 29 starts" in text
    assert "p95" not in text
    text = "\n".join(distribution([float(i) for i in range(60)]))
    assert "p95     56.000 s" in text
    assert "p99     refused: it needs at least 299 starts" in text
    assert "95 % interval" in text
    assert distribution([]) == ["no starts"]


def test_waits_over_starts_leave_out_what_never_happened() -> None:
    rows = waits_over([start((Wait.INIT, 10**9)), start((Wait.INIT, 3 * 10**9))])
    assert [row.split()[0] for row in rows] == ["wait", "init"]
    assert "2.000 s" in rows[1]
