"""Paced streams: when a listener would have had to wait, by a clock set by hand and for real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_lab import until

from preroll import Stage
from preroll.testing import serve
from preroll.worker.pace import Pace


def paced(*times_s: float) -> Pace:
    pace = Pace(0.02)
    for time_s in times_s:
        pace.frame(time_s)
    return pace


def test_frames_that_come_faster_than_they_are_played_never_run_dry() -> None:
    pace = paced(5.0, 5.01, 5.02, 5.03, 5.04)
    assert pace.underruns == 0
    assert pace.realtime_factor == pytest.approx(0.5)
    assert pace.worst_s == pytest.approx(0.01)


def test_a_gap_that_the_lead_covers_is_no_underrun() -> None:
    assert paced(0.0, 0.0, 0.0, 0.055, 0.055).underruns == 0
    assert paced(0.0, 0.0, 0.0, 0.065, 0.065).underruns == 1


def test_after_an_underrun_playing_goes_on_from_there() -> None:
    pace = paced(0.0, 0.1, 0.12, 0.14)
    assert (pace.underruns, pace.worst_s) == (1, pytest.approx(0.1))
    assert pace.realtime_factor == pytest.approx(0.14 / 0.06)


def test_one_frame_has_no_pace() -> None:
    assert paced(1.0).realtime_factor is None


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50))
def test_underruns_are_those_of_a_simulated_player(times: list[float]) -> None:
    """A player that holds what has come and takes one frame every 20 ms."""
    times = sorted(times)
    stalls, free_s = 0, times[0]
    for i, time_s in enumerate(times):
        if i and time_s > free_s:
            stalls += 1
        free_s = max(free_s, time_s) + 0.02
    assert paced(*times).underruns == stalls


def test_a_stage_with_a_frame_interval_counts_frames_and_underruns() -> None:
    class Voice(Stage):
        async def stream(self, body: Any) -> AsyncIterator[bytes]:
            for i in range(5):
                yield b"frame"
                if i == 2:
                    await asyncio.sleep(0.2)

    with serve(Voice, frame_s=0.02) as stage:
        with stage.stream(b"") as chunks:
            assert b"".join(chunks) == b"frame" * 5
        name = "preroll_worker_stream_frames_total"
        until(lambda: stage.metrics()[name] == 5, "counted")
        metrics = stage.metrics()
        assert metrics["preroll_worker_stream_underruns_total"] >= 1
        assert metrics["preroll_worker_stream_realtime_factor_count"] == 1
        assert metrics["preroll_worker_stream_worst_gap_seconds_sum"] > 0.15
        assert metrics["preroll_worker_time_to_first_chunk_seconds_count"] == 1
