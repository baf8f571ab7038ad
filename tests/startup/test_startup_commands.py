"""Commands that misbehave: whatever they do, a profile comes back and its rows sum to the total."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest
from startup_help import BURN, PYTHON, Profiled, check_sums

from preroll.backends.base import ProcessSpec, ProcessStatus
from preroll.backends.local import LocalBackend
from preroll.errors import InputError
from preroll.instruments.startup import Cause, Options, Outcome, Profile, record, run


def test_a_command_that_ends_well_is_ready_at_its_end(profiled: Profiled) -> None:
    profile = profiled("sleep", "0.2")
    check_sums(profile)
    assert profile.outcome is Outcome.READY
    assert profile.causes[Cause.SLEEP] >= 0.15
    assert profile.named_share > 0.9


def test_a_crash_keeps_the_partial_profile_with_its_last_words(profiled: Profiled) -> None:
    code = BURN + "print('about to fail', flush=True); burn(0.2); raise SystemExit(3)"
    profile = profiled(PYTHON, "-c", code, ready="never said")
    check_sums(profile)
    assert profile.outcome is Outcome.CRASHED
    assert "status 3" in profile.message
    assert [text for _, text in profile.lines] == ["about to fail"]
    assert profile.causes[Cause.CPU] >= 0.15


def test_a_command_killed_by_a_signal_says_which(profiled: Profiled) -> None:
    profile = profiled("sh", "-c", "sleep 0.1; kill -9 $$", ready="never said")
    check_sums(profile)
    assert profile.outcome is Outcome.CRASHED
    assert "signal 9" in profile.message


def test_a_command_that_never_becomes_ready_is_explained_until_the_time_out(
    profiled: Profiled,
) -> None:
    profile = profiled("sh", "-c", "echo hello; sleep 60", ready="never said", timeout_s=0.5)
    check_sums(profile)
    assert profile.outcome is Outcome.TIMED_OUT
    # The shell waits for its child, and the child's own time is what counts.
    assert profile.causes[Cause.SLEEP] >= 0.3


def test_a_command_that_ends_well_without_having_been_ready_has_not_become_ready(
    profiled: Profiled,
) -> None:
    profile = profiled("sh", "-c", "sleep 0.1; echo bye", ready="never said")
    check_sums(profile)
    assert profile.outcome is Outcome.ENDED


def test_an_interrupt_while_the_start_is_not_known_yet_keeps_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, begun, told = LocalBackend.start, asyncio.Event(), asyncio.Event()

    async def tell_late(backend: LocalBackend, spec: ProcessSpec) -> ProcessStatus:
        status = await start(backend, spec)
        begun.set()
        await told.wait()
        return status

    async def interrupt() -> Profile:
        options = Options(("sleep", "60"), "never said", recorder="proc")
        recording = asyncio.create_task(record(options))
        await begun.wait()
        recording.cancel()
        asyncio.get_running_loop().call_soon(told.set)
        return await recording

    monkeypatch.setattr(LocalBackend, "start", tell_late)
    profile = asyncio.run(interrupt())
    check_sums(profile)
    assert profile.outcome is Outcome.INTERRUPTED


def test_a_program_that_is_missing_is_a_crash_without_time(profiled: Profiled) -> None:
    profile = profiled("/nowhere/program")
    assert profile.outcome is Outcome.CRASHED
    assert "no such file" in profile.message


def test_what_a_parent_leaves_running_is_followed_until_it_is_ready(profiled: Profiled) -> None:
    profile = profiled("sh", "-c", "(sleep 0.4; echo READY; sleep 60) & exit 0", ready="READY")
    check_sums(profile)
    assert profile.outcome is Outcome.READY
    assert profile.causes[Cause.SLEEP] >= 0.3


def test_a_daemon_in_a_session_of_its_own_is_followed(profiled: Profiled) -> None:
    code = f"""{BURN}
import os
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
burn(0.4)
print("READY", flush=True)
time.sleep(60)
"""
    profile = profiled(PYTHON, "-c", code, ready="READY")
    check_sums(profile)
    assert profile.outcome is Outcome.READY
    assert profile.causes[Cause.CPU] >= 0.35


def test_zombies_cost_nothing(profiled: Profiled) -> None:
    code = """
import os, time
for _ in range(20):
    if not os.fork():
        os._exit(0)
time.sleep(0.3)
print("READY", flush=True)
time.sleep(60)
"""
    profile = profiled(PYTHON, "-c", code, ready="READY")
    check_sums(profile)
    assert profile.causes[Cause.SLEEP] >= 0.25


def test_a_hundred_threads_at_one_interpreter_lock_are_working_not_waiting(
    profiled: Profiled,
) -> None:
    code = f"""{BURN}
import threading
gate = threading.Barrier(101)
def work():
    burn(0.005)
    gate.wait()  # what a thread has run since the sampler's last look ends with it
for _ in range(100):
    threading.Thread(target=work).start()
gate.wait()
print("READY", flush=True)
time.sleep(60)
"""
    profile = profiled(PYTHON, "-c", code, ready="READY")
    check_sums(profile)
    busy = sum(profile.causes.get(c, 0.0) for c in (Cause.CPU, Cause.RUN_QUEUE, Cause.STOLEN))
    assert busy >= 0.3


def test_bytes_that_are_no_text_are_lines_all_the_same(profiled: Profiled) -> None:
    profile = profiled("sh", "-c", r"printf 'bad \377\376 line\n'; sleep 0.1; echo READY")
    check_sums(profile)
    assert len(profile.lines) == 2
    assert profile.lines[0][1].startswith("bad ")
    assert profile.lines[1][1] == "READY"


@pytest.mark.slow
def test_a_gigabyte_of_output_keeps_its_first_and_last_lines(profiled: Profiled) -> None:
    flood = "echo FIRST; head -c 1000000000 /dev/zero | tr '\\0' x | fold -w 100; echo; echo LAST"
    profile = profiled("sh", "-c", flood)
    check_sums(profile)
    assert profile.outcome is Outcome.READY
    assert profile.lines[0][1] == "FIRST"
    assert profile.lines[-1][1] == "LAST"
    assert any("are not in this profile" in note for note in profile.notes)


def test_ten_megabytes_of_output_are_searched_for_the_ready_line(profiled: Profiled) -> None:
    flood = "head -c 10000000 /dev/zero | tr '\\0' x | fold -w 100; echo; echo READY; sleep 60"
    profile = profiled("sh", "-c", flood, ready="READY")
    check_sums(profile)
    assert profile.outcome is Outcome.READY


def test_nothing_of_a_profiled_tree_is_left(profiled: Profiled) -> None:
    import psutil

    mark = f"61.{time.monotonic_ns() % 1_000_000:06d}"
    profiled("sh", "-c", f"setsid sleep {mark} & echo READY; sleep {mark}", ready="READY")
    left = [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or ())]
    assert left == []


def test_stamps_alone_say_when_but_not_why() -> None:
    profile = run([sys.executable, "-c", "print('hello')"], recorder="off")
    assert profile.causes == {Cause.UNKNOWN.value: pytest.approx(profile.total_s)}
    assert profile.mode == "off"


@pytest.mark.parametrize("kind", ["recorder", "command", "port"])
def test_what_cannot_be_run_is_refused_with_what_is_allowed(kind: str) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cases = {
            "recorder": lambda: run(["true"], recorder="magic"),
            "command": lambda: run([]),
            "port": lambda: run(["true"], str(taken.getsockname()[1])),
        }
        words = {"recorder": "allowed: auto", "command": "after --", "port": "end it first"}
        with pytest.raises(InputError, match=words[kind]):
            cases[kind]()
