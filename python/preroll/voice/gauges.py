"""The series of the voice service, in the worker's metrics. Base units, one place for the names."""

from __future__ import annotations

from preroll.worker.metrics import RATIOS, Counter, Histogram, Metrics

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)


class Gauges:
    """`queue_wait` and `call` are labelled by the stage's role: stt, llm, tts."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.partial_lag = self._seconds("preroll_voice_partial_lag_seconds")
        self.first_byte = self._seconds("preroll_voice_first_byte_seconds")
        self.first_audible = self._seconds("preroll_voice_first_audible_seconds")
        self.trimmed = self._seconds("preroll_voice_trimmed_seconds")
        self.interrupt = self._seconds("preroll_voice_interrupt_seconds")
        self.accept = metrics.histogram(
            "preroll_voice_accept_seconds", (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01)
        )
        self.realtime_factor: Histogram = metrics.histogram(
            "preroll_voice_speech_realtime_factor", RATIOS
        )
        self.underruns = metrics.counter("preroll_voice_underruns_total")
        self.interruptions = metrics.counter("preroll_voice_interruptions_total")
        self.preempted = metrics.counter("preroll_voice_preempted_total")
        self.preempted_in_vain = metrics.counter("preroll_voice_preempted_in_vain_total")
        self.turns = metrics.counter("preroll_voice_turns_total")

    def queue_wait(self, role: str) -> Histogram:
        return self._metrics.histogram("preroll_voice_queue_wait_seconds", SECONDS, stage=role)

    def call(self, role: str) -> Histogram:
        return self._metrics.histogram("preroll_voice_call_seconds", SECONDS, stage=role)

    def errors(self, role: str) -> Counter:
        return self._metrics.counter("preroll_voice_errors_total", stage=role)

    def _seconds(self, name: str) -> Histogram:
        return self._metrics.histogram(name, SECONDS)
