"""How steadily a stream's frames leave: real-time factor, underruns, worst gap."""

from __future__ import annotations

import time

from preroll.worker.metrics import RATIOS, SECONDS, Counter, Histogram, Metrics


class PaceMetrics:
    """The series that all paced streams of a replica share."""

    def __init__(self, metrics: Metrics) -> None:
        self.factor: Histogram = metrics.histogram("preroll_worker_stream_realtime_factor", RATIOS)
        self.worst: Histogram = metrics.histogram(
            "preroll_worker_stream_worst_gap_seconds", SECONDS
        )
        self.underruns: Counter = metrics.counter("preroll_worker_stream_underruns_total")
        self.frames: Counter = metrics.counter("preroll_worker_stream_frames_total")


class Pace:
    """The frames of one stream, one a chunk, each `frame_s` of playing time.

    A listener starts to play at the first frame. A frame that comes after the last one has been
    played to its end is an underrun; playing stalls and goes on from there. The real-time factor
    is the time from the first frame to the last over the playing time of those before it: below
    one, the stream is made faster than it is played.
    """

    __slots__ = ("_played_until_s", "first_s", "frame_s", "last_s", "num", "underruns", "worst_s")

    def __init__(self, frame_s: float) -> None:
        self.frame_s = frame_s
        self.num = 0
        self.underruns = 0
        self.worst_s = 0.0
        self.first_s = self.last_s = self._played_until_s = 0.0

    def frame(self, now_s: float | None = None) -> None:
        now = time.monotonic() if now_s is None else now_s
        if self.num == 0:
            self.first_s = self._played_until_s = now
        else:
            gap_s = now - self.last_s
            if gap_s > self.worst_s:
                self.worst_s = gap_s
            if now > self._played_until_s:
                self.underruns += 1
                self._played_until_s = now
        self._played_until_s += self.frame_s
        self.last_s = now
        self.num += 1

    @property
    def realtime_factor(self) -> float | None:
        """None for fewer than two frames."""
        if self.num < 2:
            return None
        return (self.last_s - self.first_s) / ((self.num - 1) * self.frame_s)

    def record(self, metrics: PaceMetrics) -> None:
        metrics.frames.value += self.num
        metrics.underruns.value += self.underruns
        factor = self.realtime_factor
        if factor is not None:
            metrics.factor.observe(factor)
            metrics.worst.observe(self.worst_s)
