"""The wall clock jumps by hours and by more than a year, either way: nothing is timed by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from served import Served, engine_stage, tokens

from preroll.events import read

Serve = Callable[[str], Served]
HOUR_S, DAY_S = 3600, 86400
JUMPS_S = (HOUR_S, -HOUR_S, 400 * DAY_S, -400 * DAY_S)


@pytest.fixture
def library() -> Path:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        pytest.skip("libfaketime is not installed (Debian: apt install faketime)")
    return found[0]


class WallClock:
    """What the processes of a service see as wall time; monotonic time stays as it is."""

    def __init__(self, file: Path, library: Path) -> None:
        self.file = file
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.jump_to(0)

    def jump_to(self, offset_s: int) -> None:
        self.file.write_text(f"{offset_s:+d}\n")


def test_no_jump_of_the_wall_clock_cuts_starts_or_ends_anything(
    serve: Serve, tmp_path: Path, library: Path
) -> None:
    clock = WallClock(tmp_path / "offset", library)
    scale = '{ min = 0, max = 1, idle_timeout = "1h" }'
    service = serve(engine_stage("--interval", "0.05", max_concurrency="4", scale=scale))
    service.start(env=clock.environment)
    assert service.chat()[0] == 200
    pids = service.pids()
    with service.stream(max_tokens=60) as response:
        first = response.readline()
        for offset_s in JUMPS_S:
            clock.jump_to(offset_s)
            assert service.chat()[0] == 200
        received = tokens(first + response.read())
    assert received[-1] == "[DONE]" and len(received) == 61
    assert service.pids() == pids, "nothing was started or ended"
    for offset_s in (HOUR_S, -400 * DAY_S):
        clock.jump_to(offset_s)
        service.kill()
        service.start(env=clock.environment)
        assert service.chat()[0] == 200
        begun = list(read(service.state.events, kinds=("serve_started",)))[-1]
        assert abs(begun.wall_s - time.time() - offset_s) < 600, "it does see the jump"
    assert service.pids() == pids, "whoever adopts is not misled either"
    stamps = [event.t_ns for event in read(service.state.events)]
    assert stamps == sorted(stamps)
