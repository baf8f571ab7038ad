"""Profiles of real commands, by each recorder that this machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from startup_help import Profiled

from preroll.instruments.startup import Profile, run


def can_trace() -> bool:
    return os.geteuid() == 0 and any(
        Path(place, "instances").is_dir()
        for place in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
    )


RECORDERS = [
    pytest.param("tracefs", marks=pytest.mark.skipif(not can_trace(), reason="needs tracefs")),
    "proc",
]


@pytest.fixture(params=RECORDERS)
def profiled(request: pytest.FixtureRequest) -> Profiled:
    """Profiles a command with each recorder in turn."""

    def one(*command: str, ready: str | None = None, **more: object) -> Profile:
        more = {"timeout_s": 60.0, "recorder": request.param, **more}
        return run(command, ready, **more)

    return one
