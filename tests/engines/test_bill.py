"""The start bill: contiguous phases that sum to the total, whatever a process prints."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll.core import Wait
from preroll.engines.base import Mark
from preroll.engines.bill import LABEL_LENGTH, Line, MarkReader, Step, bill, largest_gap, said

S = 10**9
MARKS = (
    Mark(re.compile("begin load"), then=Wait.LOAD),
    Mark(re.compile("loaded"), then=Wait.INIT, ended=Wait.LOAD),
    Mark(re.compile("graphs"), ended=Wait.COMPILE, then=Wait.INIT),
    Mark(re.compile("note")),
    Mark(re.compile("again"), then=Wait.COMPILE, repeats=True),
)


def lines(*pairs: tuple[float, str]) -> list[Line]:
    return [Line(round(t * S), text) for t, text in pairs]


def shape(*args: object, **kwargs: object) -> list[tuple[str, float]]:
    start = bill("r", "s", *args, **kwargs)  # type: ignore[arg-type]
    return [(phase.wait.value, phase.duration_s) for phase in start.phases]


def test_without_marks_a_start_is_one_wait() -> None:
    assert shape(1 * S, 3 * S, lines((2, "hello"))) == [("init", 2.0)]


def test_a_mark_begins_a_wait_and_another_ends_it() -> None:
    printed = lines((2, "begin load"), (5, "loaded"), (6, "ready"))
    assert shape(1 * S, 7 * S, printed, MARKS) == [("init", 1.0), ("load", 3.0), ("init", 2.0)]


def test_a_duration_in_a_line_bounds_what_it_reports() -> None:
    printed = lines((10, "note"), (20, "graphs captured in 4.0 secs"))
    expected = [("init", 10.0), ("init", 6.0), ("compile", 4.0), ("init", 5.0)]
    assert shape(0, 25 * S, printed, MARKS) == expected


def test_a_duration_longer_than_the_time_since_the_last_mark_is_cut() -> None:
    printed = lines((10, "note"), (12, "loaded in 500 ms"), (13, "graphs took 99 seconds"))
    assert shape(0, 14 * S, printed, MARKS) == [
        ("init", 10.0), ("init", 1.5), ("load", 0.5), ("compile", 1.0), ("init", 1.0),
    ]  # fmt: skip


def test_an_end_without_its_begin_or_a_duration_claims_nothing() -> None:
    assert shape(0, 3 * S, lines((2, "loaded")), MARKS) == [("init", 2.0), ("init", 1.0)]


def test_a_mark_counts_once_unless_it_repeats() -> None:
    printed = lines((1, "begin load"), (2, "begin load"), (3, "again"), (4, "note"), (5, "again"))
    waits = [wait for wait, _ in shape(0, 6 * S, printed, MARKS)]
    assert waits == ["init", "load", "compile", "compile", "compile"]


def test_what_preroll_does_itself_overrides_what_lines_say() -> None:
    printed = lines((2, "begin load"), (5, "again"))
    steps = [Step(4 * S, Wait.WARM, "warm-up")]
    assert shape(1 * S, 6 * S, printed, MARKS, steps) == [
        ("init", 1.0),
        ("load", 2.0),
        ("warm", 2.0),
    ]


def test_lines_count_after_steps_that_come_before_the_process() -> None:
    steps = [Step(0, Wait.FETCH, "weights"), Step(2 * S, Wait.INIT, "spawn")]
    steps += [Step(5 * S, Wait.WARM, "warm-up"), Step(6 * S, Wait.WARM, "warm-up again")]
    printed = lines((3, "begin load"), (5.5, "again"))
    assert shape(0, 7 * S, printed, MARKS, steps) == [
        ("fetch", 2.0), ("init", 1.0), ("load", 2.0), ("warm", 1.0), ("warm", 1.0),
    ]  # fmt: skip


def test_lines_outside_the_start_are_cut() -> None:
    printed = lines((0.5, "begin load"), (9, "graphs"))
    assert shape(1 * S, 3 * S, printed, MARKS) == [("init", 2.0)]


def test_a_start_that_fetched_had_no_local_weights() -> None:
    marks = (Mark(re.compile("fetched"), then=Wait.LOAD, ended=Wait.FETCH),)
    printed = lines((1, "fetched in 0.5 s"))
    assert bill("r", "s", 0, 2 * S, printed, marks).preparedness == "warm_node"
    assert bill("r", "s", 0, 2 * S, printed).preparedness == "local_weights"


def test_a_start_cannot_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="before spawned_ns"):
        bill("r", "s", 2, 1, [])


texts = st.sampled_from(
    ["begin load", "loaded", "loaded took 3.5 s", "graphs 99999 seconds", "note", "again", "x"]
)
events = st.lists(st.tuples(st.integers(0, 1000), texts), max_size=30)


@given(events, st.integers(0, 500), st.integers(0, 500), st.lists(st.integers(0, 1000), max_size=3))
def test_phases_are_contiguous_and_sum_to_the_total(
    printed: list[tuple[int, str]], spawned: int, lasted: int, steps: list[int]
) -> None:
    stamped = [Line(t, text) for t, text in sorted(printed, key=lambda p: p[0])]
    own = [Step(t, Wait.WARM, "w") for t in sorted(steps)]
    start = bill("r", "s", spawned, spawned + lasted, stamped, MARKS, own)
    assert start.phases[0].start_ns == spawned
    assert start.phases[-1].end_ns == spawned + lasted
    for before, after in zip(start.phases, start.phases[1:], strict=False):
        assert before.end_ns == after.start_ns
    assert sum(p.end_ns - p.start_ns for p in start.phases) == lasted
    assert start.gap is None or spawned <= start.gap.start_ns < start.gap.end_ns


def test_the_longest_silence_is_named_by_the_line_before_it() -> None:
    printed = lines((1, "INFO [a.py:1] Loading weights took 2 s"), (9, "ready"))
    gap = largest_gap(printed, 0, 10 * S)
    assert gap is not None
    assert (gap.duration_s, gap.after) == (8.0, "Loading weights took 2 s")


def test_a_silence_before_the_first_line_is_named_too() -> None:
    gap = largest_gap(lines((9, "x")), 0, 10 * S)
    assert gap is not None
    assert (gap.duration_s, gap.after) == (9.0, "spawn")
    assert largest_gap([], 5, 5) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("(Worker pid=12) INFO 06-02 00:51:39 [core.py:397] Loading took 2 s", "Loading took 2 s"),
        ("\x1b[36m(APIServer pid=1)\x1b[0;0m INFO:     Started", "Started"),
        ("[2025-12-23 14:18:01 TP0] Load weight begin.", "Load weight begin."),
        ("[11/02/2026-10:00:00] [TRT-LLM] [I] hello", "hello"),
        ("2026-11-29T10:00:00Z INFO hello", "hello"),
        ("INFO", "INFO"),
        ("3 workers", "3 workers"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_label_is_what_was_said_without_the_loggers_prefix(line: str, words: str) -> None:
    assert said(line) == words


def test_a_label_is_bounded() -> None:
    assert len(said("x" * 10_000)) == LABEL_LENGTH


def test_a_reader_tells_a_running_start_what_begins() -> None:
    reader = MarkReader(MARKS)
    assert reader.match("nothing") is None
    matched = reader.match("[x] begin load now")
    assert matched is not None
    assert matched[0].then is Wait.LOAD
    assert matched[1] == "begin load now"
    assert reader.match("begin load") is None
