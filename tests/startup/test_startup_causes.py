"""Planted truths: what a command really waits for is the cause that the profile names."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from startup_help import BURN, PYTHON, Profiled, check_sums

from preroll.instruments.startup import Cause, Profile

# Both recorders must find this much of a planted wait; the machine adds its own.
MOST = 0.8


def busy(profile: Profile) -> float:
    return sum(profile.causes.get(c, 0.0) for c in (Cause.CPU, Cause.RUN_QUEUE, Cause.STOLEN))


def test_a_child_that_is_waited_for_is_what_the_time_went_to(profiled: Profiled) -> None:
    code = f"""{BURN}
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN + "burn(0.5)"!r}], check=True)
"""
    profile = profiled(PYTHON, "-c", code)
    check_sums(profile)
    assert busy(profile) >= 0.5 * MOST
    assert profile.causes.get(Cause.CHILD, 0.0) < 0.05
    of_child = [one for one in profile.processes if "burn(0.5)" in one.command]
    assert any(sum(one.causes.values()) >= 0.5 * MOST for one in of_child)


def test_three_processes_one_after_the_other_show_as_that(profiled: Profiled) -> None:
    inner = BURN + "burn(0.25)"
    code = f"""
import subprocess, sys
for _ in range(3):
    subprocess.run([sys.executable, "-c", {inner!r}], check=True)
"""
    profile = profiled(PYTHON, "-c", code)
    check_sums(profile)
    children = [p for p in profile.processes if sum(p.causes.values()) >= 0.25 * MOST]
    assert len(children) == 3
    for before, after in itertools.pairwise(children):
        assert before.end_s <= after.start_s + 0.02


def test_a_lock_whose_holder_sleeps_is_a_lock(profiled: Profiled) -> None:
    code = """
import threading, time
lock = threading.Lock()
lock.acquire()
def hold():
    time.sleep(0.5)
    lock.release()
threading.Thread(target=hold).start()
lock.acquire()
"""
    profile = profiled(PYTHON, "-c", code)
    check_sums(profile)
    assert profile.causes[Cause.LOCK] >= 0.5 * MOST


def test_a_lock_whose_holder_works_is_that_work(profiled: Profiled) -> None:
    code = f"""{BURN}
import threading
lock = threading.Lock()
lock.acquire()
def hold():
    burn(0.4)
    lock.release()
threading.Thread(target=hold).start()
lock.acquire()
"""
    profile = profiled(PYTHON, "-c", code)
    check_sums(profile)
    assert busy(profile) >= 0.4 * MOST


def test_waiting_for_a_processor_is_not_computing(profiled: Profiled) -> None:
    code = f"""{BURN}
import os
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
if not os.fork():
    burn(60)
burn(0.3)
print("READY", flush=True)
time.sleep(60)
"""
    profile = profiled(PYTHON, "-c", code, ready="READY")
    check_sums(profile)
    assert profile.causes[Cause.RUN_QUEUE] >= 0.15


def test_a_socket_that_nobody_in_the_tree_serves_is_the_network(profiled: Profiled) -> None:
    code = """
import socket
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
listener.settimeout(0.4)
try:
    listener.accept()
except TimeoutError:
    pass
"""
    profile = profiled(PYTHON, "-c", code)
    check_sums(profile)
    assert profile.causes[Cause.NETWORK] >= 0.4 * MOST


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping caches needs root")
def test_a_cold_file_is_read_from_storage_and_named(profiled: Profiled, tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(os.urandom(1 << 20) * 64)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    profile = profiled("cat", str(file))
    check_sums(profile)
    if profile.mode == "tracefs":
        found = {cost.path: cost.cold_bytes for cost in profile.files}
        assert found.get(str(file), 0) >= 32 << 20
    waited = sum(profile.causes.get(c, 0.0) for c in (Cause.READ, Cause.DISK, Cause.PIPE))
    assert waited > 0.0


def test_a_line_of_a_c_library_is_stamped_and_bounds_a_label(profiled: Profiled) -> None:
    code = """
import ctypes, time
libc = ctypes.CDLL(None)
time.sleep(0.2)
libc.write(2, b"a C library speaks\\n", 19)
time.sleep(0.2)
"""
    profile = profiled(PYTHON, "-c", code)
    check_sums(profile)
    at_s = next(t_s for t_s, text in profile.lines if text == "a C library speaks")
    assert at_s >= 0.2
    label = next(one for one in profile.labels if one.name == "a C library speaks")
    assert label.causes[Cause.SLEEP] >= 0.2 * MOST
