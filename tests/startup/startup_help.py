"""What the tests of profiles share: commands with known costs, and what holds for every profile."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from preroll.instruments.startup import Profile

PYTHON = sys.executable
# What the burning parts of commands spend: processor time, whatever the machine does.
BURN = """
import time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
"""

Profiled = Callable[..., Profile]


def check_sums(profile: Profile) -> None:
    """What holds for every profile, however its command behaved."""
    total = profile.total_s
    assert sum(profile.causes.values()) == pytest.approx(total, abs=1e-6)
    assert sum(one.seconds for one in profile.slices) == pytest.approx(total, abs=1e-6)
    if profile.labels:
        assert profile.labels[0].start_s == 0.0
        assert profile.labels[-1].end_s == total
        for before, after in zip(profile.labels, profile.labels[1:], strict=False):
            assert before.end_s == after.start_s
        for label in profile.labels:
            assert sum(label.causes.values()) == pytest.approx(label.seconds, abs=1e-6)
