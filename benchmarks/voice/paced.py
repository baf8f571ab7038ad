"""Live words, simulated at the pace of speech: when they are final, and how many are wrong.

    python benchmarks/voice/paced.py --encode-ms 100 --token-ms 6.5 --align-ms 24 --at-once 2

The transcripts are the real model's; how long one takes is given, so that a busy machine changes
nothing and settings can be compared (`--set trim_s=9.5 --set context_s=4`). Spoken are the
recordings of `make voice`; slow, noisy and late variants of them; several joined to one stream.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/voice"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import recordings  # noqa: E402

from preroll.voice.agreement import plain  # noqa: E402
from preroll.voice.live import Job, LiveSettings, LiveTranscript, Update  # noqa: E402
from preroll.voice.recognizer import Recognizer, Window  # noqa: E402
from preroll.voice.silero import Silero  # noqa: E402
from preroll.voice.utterance import Hypothesis  # noqa: E402

MODEL = ROOT / ".cache/voice/whisper-int8"
RATE = 16_000
CHUNK = 320
NOISE_DB = 15.0


@dataclass(slots=True)
class Costs:
    """Of one transcript, in seconds: its encoder, each step of the decoder, its alignment."""

    encode_s: float
    token_s: float
    align_s: float
    model: Recognizer = field(default_factory=lambda: Recognizer(MODEL))
    _known: dict[Any, Hypothesis] = field(default_factory=dict)

    def hear(self, job: Job) -> tuple[Hypothesis, float]:
        key = (job.audio.tobytes(), job.prefix_ids, job.before_ids)
        if key not in self._known:
            window = Window(job.audio, job.prefix_ids, job.before_ids)
            self._known[key] = self.model.recognize([window])[0]
        heard = self._known[key]
        # CTranslate2 makes a step for each token that is forced as for one that is new.
        steps = len(job.prefix_ids) + sum(len(w.token_ids) for w in heard.words) + 2
        return heard, self.encode_s + self.token_s * steps + self.align_s


@dataclass(slots=True)
class Stream:
    """One stream, spoken at its pace to a clock of its own."""

    live: LiveTranscript
    costs: Costs
    at_once: int
    lags_s: list[float] = field(default_factory=list)
    text: str = ""
    busy_s: float = 0.0
    running: list[tuple[float, Job, Hypothesis]] = field(default_factory=list)

    def speak(self, samples: Any) -> None:
        samples = np.concatenate([samples, np.zeros(RATE, np.float32)])
        now_s = 0.0
        for i in range(0, samples.size, CHUNK):
            now_s = (i + CHUNK) / RATE
            self._until(now_s)
            self.live.push(samples[i : i + CHUNK])
            self._begin(now_s)
        self.live.finish()
        self._begin(now_s)
        while self.running:
            now_s = max(now_s, min(ready_s for ready_s, _, _ in self.running))
            self._until(now_s)

    def _until(self, now_s: float) -> None:
        while self.running and min(r[0] for r in self.running) <= now_s:
            done = min(self.running, key=lambda r: r[0])
            self.running.remove(done)
            self._tell(self.live.apply(done[1], done[2]), done[0])
            self._begin(done[0])

    def _begin(self, now_s: float) -> None:
        while len(self.running) < self.at_once:
            job = self.live.next_job([job for _, job, _ in self.running])
            if job is None:
                break
            heard, cost_s = self.costs.hear(job)
            self.busy_s += cost_s
            self.running.append((now_s + cost_s, job, heard))
        self._tell(self.live.settle(), now_s)

    def _tell(self, updates: list[Update], now_s: float) -> None:
        for update in updates:
            if update.kind == "final":
                self.text += update.text
                ends = [word.end_s for word in update.words if plain(word.text)]
                self.lags_s += [now_s - end_s for end_s in ends[-1:]]


def spoken() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Named sets of texts and their samples."""
    found = [(r.text, r.samples()) for r in recordings.find()]
    yield "recordings", found
    yield "commands", [(r.text, r.samples()) for r in recordings.commands()]
    yield "variants", [(text, other) for text, clip in found for other in _variants(clip)]
    groups = (found[:4], found[4:], found[2:6], found[1:5], found[3:7], found[::2], found[1::2])
    yield "joined", [(" ".join(t for t, _ in g), np.concatenate([c for _, c in g])) for g in groups]


def _variants(clip: Any) -> Iterator[Any]:
    at = np.linspace(0, clip.size - 1, int(1.15 * clip.size))
    yield np.interp(at, np.arange(clip.size), clip).astype(np.float32)
    level = np.sqrt(np.mean(clip**2)) * 10 ** (-NOISE_DB / 20)
    noise = np.random.default_rng(clip.size).normal(0.0, level, clip.size)
    yield (clip + noise).astype(np.float32)
    yield np.concatenate([np.zeros(1_130, np.float32), clip])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--encode-ms", type=float, default=100.0)
    parser.add_argument("--token-ms", type=float, default=6.5)
    parser.add_argument("--align-ms", type=float, default=24.0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--only", default="recordings,commands,variants,joined")
    parser.add_argument("--set", action="append", default=[], help="a field of LiveSettings")
    options = parser.parse_args()
    try:
        changed: dict[str, Any] = {n: float(v) for n, v in (one.split("=") for one in options.set)}
        settings = replace(LiveSettings(), **changed)
    except (TypeError, ValueError) as error:
        parser.error(f"--set: {error}")
    costs = Costs(options.encode_ms / 1e3, options.token_ms / 1e3, options.align_ms / 1e3)
    print(f"{'spoken':12} {'words':>5} {'wrong':>6} {'p50 ms':>7} {'p90 ms':>7} {'busy':>5}")
    for name, clips in spoken():
        if name not in options.only.split(","):
            continue
        lags, wrong, words, busy_s, audio_s = [], 0, 0, 0.0, 0.0
        for text, samples in clips:
            stream = Stream(LiveTranscript(Silero().push, settings), costs, options.at_once)
            stream.speak(samples)
            errors, of = recordings.errors(text, stream.text)
            wrong, words, lags = wrong + errors, words + of, lags + stream.lags_s
            busy_s, audio_s = busy_s + stream.busy_s, audio_s + samples.size / RATE + 1.0
        p50, p90 = statistics.median(lags), sorted(lags)[int(0.9 * len(lags))]
        share, busy = wrong / words, busy_s / audio_s
        print(f"{name:12} {words:5} {share:6.1%} {1e3 * p50:7.0f} {1e3 * p90:7.0f} {busy:5.2f}")


class _Plain(argparse.RawDescriptionHelpFormatter):
    """The command stays a line of its own."""


if __name__ == "__main__":
    main()
