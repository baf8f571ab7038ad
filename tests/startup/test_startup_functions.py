"""Functions on a processor: what is sampled from real interpreters, and how samples are laid."""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from startup_help import BURN, Profiled, check_sums
from test_startup_hook import interpreters

from preroll.instruments.startup import Cause, Profile
from preroll.instruments.startup.base import Function, Slice
from preroll.instruments.startup.functions import REACH_NS, Samples, named, place, times, top

F, G = Function("f", "f.py", 1), Function("g", "g.py", 2)
MS = 1_000_000
WORK = f"""{BURN}
class Model:
    def load(self):
        burn(0.4)
def ünïcode():
    total = 0
    for number in range(6_000_000):
        total += number
def generated():
    yield ünïcode()
Model().load()
list(generated())
"""

YIELDING = """
import time
def endless():
    number = 0
    while True:
        number += 1
        yield number
class Made:
    def __init__(self):
        self.made = 0
def drive(seconds):
    end, one = time.thread_time() + seconds, endless()
    while time.thread_time() < end:
        for _ in range(300):
            next(one)
        for _ in range(100):
            Made()
drive(0.6)
"""


def own(profile: Profile) -> dict[str, float]:
    return {one.name: one.own_s for one in profile.functions}


@pytest.mark.parametrize("program", interpreters(), ids=lambda program: Path(program).name)
def test_processor_time_goes_to_the_function_that_ran(profiled: Profiled, program: str) -> None:
    profile = profiled(program, "-c", WORK)
    check_sums(profile)
    assert 0.3 <= own(profile)["burn"] <= 0.5
    assert own(profile)["ünïcode"] > 0.05
    (body,) = (x for x in profile.functions if (x.name, x.file) == ("<module>", "<string>"))
    beneath = own(profile)["burn"] + own(profile)["ünïcode"]
    assert body.whole_s >= beneath - 1e-6 and body.own_s < beneath
    (burn,) = (one for one in profile.functions if one.name == "burn")
    assert (burn.file, burn.line) == ("<string>", 3)
    stacks = [one.stack for one in profile.slices if one.stack and one.stack[0].name == "burn"]
    assert [one.name for one in stacks[-1]] == ["burn", "Model.load", "<module>"]


@pytest.mark.parametrize("program", interpreters(), ids=lambda program: Path(program).name)
def test_a_generator_is_called_by_somebody_whenever_it_is_looked_at(
    profiled: Profiled, program: str
) -> None:
    """It changes while it is read: suspended, it has no caller and looks like a thread's first
    function. What the interpreter runs around calls is nobody's function."""
    profile = profiled(program, "-I", "-c", YIELDING)
    stacks = [[one.name for one in piece.stack] for piece in profile.slices if piece.stack]
    mine = {tuple(stack) for stack in stacks if {"endless", "drive"} & set(stack)}
    drive = ("drive", "<module>")
    assert (
        {drive, ("endless", *drive)}
        <= mine
        <= {drive, ("endless", *drive), ("Made.__init__", *drive)}
    )


@pytest.mark.parametrize("program", interpreters(), ids=lambda program: Path(program).name)
def test_a_generator_may_be_the_first_function_of_a_thread(
    profiled: Profiled, program: str
) -> None:
    code = f"""{BURN}
import _thread
done = _thread.allocate_lock()
done.acquire()
def alone():
    burn(0.15)
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
    done.release()
    yield
first = alone()
_thread.start_new_thread(first.__next__, ())
done.acquire()
"""
    profile = profiled(program, "-I", "-c", code)
    assert own(profile)["alone"] >= 0.2 and own(profile)["burn"] >= 0.05


def test_the_hook_is_not_needed(profiled: Profiled) -> None:
    assert own(profiled(sys.executable, "-I", "-c", WORK, hook=False))["burn"] >= 0.3


def test_a_shell_that_becomes_a_python_and_its_child_are_looked_into(profiled: Profiled) -> None:
    child = BURN.replace("burn", "in_child") + "in_child(0.3)"
    code = f"""{BURN}
import subprocess, sys
burn(0.3)
subprocess.run([sys.executable, "-c", {child!r}], check=True)
"""
    waits = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; exec"
    profile = profiled("sh", "-c", f'{waits} "$0" -c "$1"', sys.executable, code)
    assert own(profile)["burn"] >= 0.2
    assert own(profile)["in_child"] >= 0.2


def test_each_thread_is_in_functions_of_its_own(profiled: Profiled) -> None:
    code = f"""{BURN}
import threading
def aside():
    burn(0.3)
thread = threading.Thread(target=aside)
thread.start()
thread.join()
"""
    profile = profiled(sys.executable, "-c", code)
    stacks = [one.stack for one in profile.slices if one.stack and one.stack[0].name == "burn"]
    assert stacks and all("aside" in [one.name for one in stack] for stack in stacks)


def test_deep_recursion_is_cut_at_its_outer_end(profiled: Profiled) -> None:
    code = BURN + "def deep(n):\n    deep(n - 1) if n else burn(0.3)\ndeep(500)"
    profile = profiled(sys.executable, "-c", code)
    assert own(profile)["burn"] >= 0.2


def test_what_is_no_python_has_none(profiled: Profiled) -> None:
    profile = profiled("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    assert profile.functions == ()
    assert shutil.which("sh")


def cpu(start_ms: int, end_ms: int, tid: int = 1) -> Slice:
    return Slice(start_ms * MS, end_ms * MS, Cause.CPU, tid, tid, cold_bytes=7)


def laid(slices: list[Slice], *rows: tuple[int, int, tuple[Function, ...]]) -> list[Slice]:
    return list(named(slices, Samples((t * MS, tid, stack) for t, tid, stack in rows)))


def test_a_sample_stands_for_the_time_up_to_half_the_way_to_the_next() -> None:
    found = laid([cpu(0, 40)], (10, 1, (F,)), (20, 1, (G, F)), (30, 1, (G, F)))
    bounds = [(one.start_ns // MS, one.end_ns // MS, one.stack) for one in found]
    assert bounds == [(0, 15, (F,)), (15, 40, (G, F))]
    assert [one.cold_bytes for one in found] == [7, 0]
    total = {one.name: (one.own_s, one.whole_s) for one in times(found)}
    assert total == {"g": (0.025, 0.025), "f": (0.015, 0.04)}
    assert top(found) == (G, 0.625)


def test_nothing_is_said_far_from_a_sample_of_another_thread_or_off_the_processor() -> None:
    asleep = Slice(100 * MS, 200 * MS, Cause.SLEEP, 1, 1)
    far = laid([cpu(0, 100), asleep, cpu(200, 300, tid=2)], (50, 1, (F,)), (150, 1, (F,)))
    known = [one for one in far if one.stack]
    assert [(one.start_ns, one.end_ns) for one in known] == [
        (50 * MS - REACH_NS, 50 * MS + REACH_NS)
    ]
    assert top(laid([cpu(0, 10)])) is None


@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans(), st.integers(1, 2)), max_size=12),
    st.lists(
        st.tuples(st.integers(0, 600), st.integers(1, 2), st.sampled_from([(F,), (G, F)])),
        max_size=30,
    ),
)
def test_slices_tile_as_before(
    parts: list[tuple[int, bool, int]], rows: list[tuple[int, int, tuple[Function, ...]]]
) -> None:
    slices, now = [], 0
    for length, is_cpu, tid in parts:
        cause = Cause.CPU if is_cpu else Cause.READ
        slices.append(Slice(now * MS, (now + length) * MS, cause, tid, tid, cold_bytes=3))
        now += length
    found = laid(slices, *rows)
    for before, after in itertools.pairwise(found):
        assert before.end_ns == after.start_ns
    assert all(one.end_ns > one.start_ns for one in found)
    assert sum(one.end_ns - one.start_ns for one in found) == now * MS
    assert sum(one.cold_bytes for one in found) == 3 * len(slices)
    assert sum(one.own_s for one in times(found)) <= now / 1000 + 1e-9


def test_a_source_file_is_shown_without_what_all_share() -> None:
    assert place("/env/lib/python3.11/site-packages/torch/nn/x.py") == "torch/nn/x.py"
    assert place("/usr/lib/python3.11/json/decoder.py") == "json/decoder.py"
    assert place("/srv/app/lib/model.py") == "lib/model.py"
    assert place("<string>") == "<string>"
