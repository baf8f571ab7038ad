"""Which stretch a line speaks of, and labels that say something else than what happened."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll.core import Phase, Wait
from preroll.instruments.startup.base import Cause
from preroll.instruments.startup.honesty import Facts, lie
from preroll.instruments.startup.labels import MAX_SEGMENTS, SPAWN, Said, labels


def named(*lines: tuple[float, str], total_s: float = 10.0) -> list[tuple[str, float, float]]:
    found = labels([Said(t_s, text) for t_s, text in lines], total_s)
    return [(one.name, one.start_s, one.end_s) for one in found]


def test_an_announcement_names_what_follows_it() -> None:
    found = named((1.0, "Loading weights ..."), (6.0, "hello"))
    assert found == [(SPAWN, 0.0, 1.0), ("Loading weights ...", 1.0, 6.0), ("hello", 6.0, 10.0)]


def test_a_report_names_what_came_before_it() -> None:
    found = named((1.0, "version 3"), (6.0, "weights loaded in 5.0 s"))
    assert found[1] == ("weights loaded in 5.0 s", 1.0, 6.0)


def test_after_a_report_nobody_says_what_happens() -> None:
    found = named((4.0, "Loading: done"), total_s=10.0)
    assert found[-1] == ("after 'Loading: done'", 4.0, 10.0)


def test_a_progress_bar_is_one_label() -> None:
    bar = [
        (1.0 + i, f"Loading shards:  {12 * i}%|{'█' * i}{' ' * (8 - i)}| {i}/8") for i in range(9)
    ]
    found = named(*bar)
    assert [(start, end) for _, start, end in found] == [(0.0, 1.0), (1.0, 10.0)]


def test_prefixes_of_loggers_and_colours_are_left_out() -> None:
    line = "\x1b[32mINFO\x1b[0m 11-29 12:00:00 [loader.py:12] Starting to load model"
    assert named((1.0, line))[-1][0] == "Starting to load model"


def test_bounds_of_a_known_engines_phases_are_bounds_of_labels() -> None:
    second = 10**9
    phases = (
        Phase(Wait.INIT, "spawn", 0, 4 * second),
        Phase(Wait.LOAD, "weights took 3 s", 4 * second, 7 * second),
        Phase(Wait.INIT, "weights took 3 s", 7 * second, 10 * second),
    )
    found = labels([Said(7.0, "weights took 3 s")], 10.0, phases)
    waits = [(one.end_s, one.wait) for one in found]
    assert waits == [(4.0, "init"), (7.0, "load"), (10.0, "init")]


@given(
    st.lists(st.tuples(st.floats(0, 100), st.text(max_size=20)), max_size=200),
    st.floats(0.001, 100),
)
def test_labels_tile_the_start_whatever_is_printed(
    lines: list[tuple[float, str]], total_s: float
) -> None:
    found = labels([Said(t_s, text) for t_s, text in sorted(lines)], total_s)
    assert len(found) <= MAX_SEGMENTS
    assert found[0].start_s == 0.0
    assert found[-1].end_s == total_s
    for before, after in itertools.pairwise(found):
        assert before.end_s == after.start_s


LIES = [
    ("compiling kernels", {Cause.SLEEP: 6.2, Cause.CPU: 3.8}, {}, "62% asleep"),
    ("Capturing CUDA graphs", {Cause.LOCK: 9, Cause.CPU: 1}, {}, "waiting for a lock"),
    # The engine "deserialised" for 12 s of which most was a shared import.
    (
        "deserializing the big engine",
        {Cause.CPU: 10.0},
        {"import_s": 7.0, "top_package": "transformers"},
        "70% importing transformers",
    ),
    # Weights "load" while threads fight over processors.
    ("Loading weights", {Cause.RUN_QUEUE: 8, Cause.CPU: 2}, {}, "waiting for a processor"),
    # init_weights computed for 21 s, the load took half a second.
    ("loading checkpoint", {Cause.CPU: 9.5, Cause.READ: 0.5}, {}, "nothing came from storage"),
    # An import that is a page-fault storm over a slow mount is no compilation.
    ("torch.compile", {Cause.FAULT_IO: 7, Cause.CPU: 3}, {}, "70% reading files"),
    ("Downloading model", {Cause.CPU: 8, Cause.NETWORK: 2}, {}, "80% computing"),
    ("importing torch", {Cause.NETWORK: 6, Cause.CPU: 4}, {}, "60% waiting for the network"),
    ("init engine", {Cause.SLEEP: 5, Cause.CPU: 5}, {}, "50% asleep"),
]


@pytest.mark.parametrize(("name", "causes", "more", "said"), LIES)
def test_every_kind_of_wrong_label_is_found(
    name: str, causes: dict[str, float], more: dict[str, object], said: str
) -> None:
    found = lie(name, Facts(sum(causes.values()), causes, **more), 10.0)  # type: ignore[arg-type]
    assert found is not None
    assert said in found


HONEST = [
    ("compiling kernels", {Cause.CPU: 9, Cause.READ: 1}),
    ("Loading weights", {Cause.READ: 6, Cause.CPU: 4}),
    ("Loading weights", {Cause.FAULT_IO: 6, Cause.CPU: 4}),
    ("Downloading model", {Cause.NETWORK: 9, Cause.DISK: 1}),
    ("waiting for workers", {Cause.SLEEP: 9, Cause.CPU: 1}),
    ("retrying in 5 s", {Cause.SLEEP: 10}),
    ("warming up", {Cause.DEVICE: 6, Cause.CPU: 4}),
    ("anything at all", {Cause.CPU: 10}),
]


@pytest.mark.parametrize(("name", "causes"), HONEST)
def test_a_label_that_says_what_happened_is_left_alone(name: str, causes: dict[str, float]) -> None:
    assert lie(name, Facts(10.0, causes, cold_bytes=1), 10.0) is None


def test_on_a_full_machine_a_label_is_judged_by_the_time_in_which_it_had_a_processor() -> None:
    crowded = {Cause.RUN_QUEUE: 6.0, Cause.CPU: 4.0}
    assert lie("importing torch", Facts(10.0, crowded), 100.0, usual_crowd=0.55) is None
    found = lie("Loading weights", Facts(10.0, crowded), 100.0, usual_crowd=0.55)
    assert found is not None and "40% computing" in found
    found = lie("importing torch", Facts(10.0, crowded), 100.0, usual_crowd=0.1)
    assert found is not None and "waiting for a processor" in found


def test_a_crumb_is_not_worth_a_flag() -> None:
    assert lie("compiling", Facts(0.04, {Cause.SLEEP: 0.04}), 10.0) is None
