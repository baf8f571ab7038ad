"""`make bench-load`: the client's own error and cost against a mock with TTFT 100 ms and gap 20 ms.

`make bench-load-peers` runs aiperf and guidellm beside it, where they install.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from peers import PEERS, Load, Peer, run

from preroll.instruments.load.client import Client, Mock
from preroll.instruments.load.records import read
from preroll.instruments.load.requests import Ask, parse_url, template

TTFT_MS, GAP_MS, TOKENS = 100.0, 20.0, 64
STREAMS = (1, 32, 128, 512)
PEER_STREAMS = (32, 128)
CYCLE_S = (TTFT_MS + GAP_MS * (TOKENS - 1)) / 1e3


@dataclass(frozen=True, slots=True)
class Sample:
    p50_error_ms: float
    p99_error_ms: float
    gap_p50_ms: float
    us_per_chunk: float
    lag_p99_ms: float
    overhead_s: float


def measure(mock: Mock, streams: int, requests: int, file: Path) -> Sample:
    """One run; the overhead is wall time beyond what the answers must take."""
    server = parse_url(mock.url)
    spec = {
        "version": 1,
        **server.spec(),
        "requests": [template(server, Ask(model="mock", max_tokens=TOKENS), "hello")],
        # Streams begin over one answer's length: in lockstep the mock, which sends one first token
        # after the other, would itself be off its time.
        "load": {"mode": "closed", "connections": 1, "ramp_to": streams, "ramp_s": CYCLE_S},
        "stop": {"requests": requests},
        "warmup": {"requests": streams},
        "detail": "gaps",
        "records": str(file),
    }
    start = time.monotonic()
    with Client(spec) as client:
        end = list(client)[-1]
    wall_s = time.monotonic() - start
    if end["ok"] != requests:
        raise RuntimeError(f"{streams} streams: {end['failures']}")
    least_s = (1 + -(-requests // streams)) * CYCLE_S + (CYCLE_S if streams > 1 else 0.0)
    events = end["content_events"] * (requests + streams) / requests
    raw = read(file)
    first = sorted((r["first_content_ns"] - r["intended_ns"]) / 1e6 for r in raw.ok)
    gaps = sorted(gap / 1e6 for r in raw.ok for gap in r["gaps_ns"])
    lags = (end["timer_lag_ns"]["p99"], end["read_lag_ns"]["p99"])
    return Sample(
        p50_error_ms=first[len(first) // 2] - TTFT_MS,
        p99_error_ms=first[math.ceil(0.99 * len(first)) - 1] - TTFT_MS,
        gap_p50_ms=gaps[len(gaps) // 2],
        us_per_chunk=end["cpu_ns"] / 1e3 / events,
        lag_p99_ms=max(lags) / 1e6,
        overhead_s=wall_s - least_s,
    )


def best(samples: list[Sample]) -> Sample:
    """Medians over rounds, field by field."""
    fields = Sample.__slots__
    return Sample(**{f: statistics.median(getattr(s, f) for s in samples) for f in fields})


def measure_peer(peer: Peer, mock: Mock, streams: int, base_cpu_s: float, folder: Path) -> Sample:
    """Its own samples, and the processor time of all its processes beyond that of one request."""
    requests = 2 * streams
    found = run(peer, Load(mock.url, streams, requests, TOKENS, CYCLE_S), folder)
    return Sample(
        p50_error_ms=found.quantile(0.5) - TTFT_MS,
        p99_error_ms=found.quantile(0.99) - TTFT_MS,
        gap_p50_ms=math.nan,
        us_per_chunk=(found.cpu_s - base_cpu_s) * 1e6 / ((requests + streams) * TOKENS),
        lag_p99_ms=math.nan,
        overhead_s=found.wall_s - 4 * CYCLE_S,
    )


def beside(ours: dict[int, list[Sample]], rounds: int) -> dict[str, float]:
    """A table of the peers that are installed; their figures by key."""
    keys: dict[str, float] = {}
    print("\n| client | streams | TTFT p50 / p99 error ms | µs/chunk | overhead s | CPU s of 1 |")
    print("|---|---|---|---|---|---|")
    for streams in PEER_STREAMS:
        print(_peer_row("preroll", streams, best(ours[streams]), 0.0))
    folder = tempfile.TemporaryDirectory()
    with folder, Mock(ttft_ms=TTFT_MS, gap_ms=GAP_MS) as mock:
        for peer in PEERS:
            if not peer.program.exists():
                print(f"| {peer.name} | not installed | | | | |")
                continue
            place = Path(folder.name) / peer.name
            try:
                one = Load(mock.url, 1, 1, TOKENS, CYCLE_S)
                base_cpu_s = run(peer, one, place / "one").cpu_s
                for streams in PEER_STREAMS:
                    samples = [
                        measure_peer(peer, mock, streams, base_cpu_s, place / f"{streams}-{n}")
                        for n in range(rounds)
                    ]
                    found = best(samples)
                    print(_peer_row(peer.name, streams, found, base_cpu_s))
                    keys[f"{peer.name}_ttft_p50_error_ms_{streams}"] = round(found.p50_error_ms, 2)
                    keys[f"{peer.name}_ttft_p99_error_ms_{streams}"] = round(found.p99_error_ms, 2)
                    keys[f"{peer.name}_us_per_chunk_{streams}"] = round(found.us_per_chunk, 1)
                    keys[f"{peer.name}_overhead_s_{streams}"] = round(found.overhead_s, 2)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"| {peer.name} | failed: {error} | | | | |")
    return keys


def _peer_row(name: str, streams: int, s: Sample, base_cpu_s: float) -> str:
    errors = f"{s.p50_error_ms:+.2f} / {s.p99_error_ms:+.2f}"
    rest = f"{s.us_per_chunk:.1f} | {s.overhead_s:.2f} | {base_cpu_s:.1f}"
    return f"| {name} | {streams} | {errors} | {rest} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="*", default=list(STREAMS))
    parser.add_argument("--peers", action="store_true", help="aiperf and guidellm beside ours")
    parser.add_argument("--peer-rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/bench/load.json"))
    arguments = parser.parse_args()
    found: dict[int, list[Sample]] = {n: [] for n in arguments.streams}
    folder = tempfile.TemporaryDirectory()
    with folder, Mock(ttft_ms=TTFT_MS, gap_ms=GAP_MS) as mock:
        file = Path(folder.name) / "records.ndjson"
        for _ in range(arguments.rounds):
            for streams in arguments.streams:
                found[streams].append(measure(mock, streams, max(2, 2 * streams), file))
    print("| streams | TTFT p50 / p99 error ms | gap p50 ms | µs/chunk | lag p99 ms | overhead s |")
    print("|---|---|---|---|---|---|")
    keys: dict[str, float] = {}
    for streams, samples in found.items():
        s = best(samples)
        errors = f"{s.p50_error_ms:+.2f} / {s.p99_error_ms:+.2f}"
        rest = (
            f"{s.gap_p50_ms:.2f} | {s.us_per_chunk:.1f} | {s.lag_p99_ms:.2f} | {s.overhead_s:.2f}"
        )
        print(f"| {streams} | {errors} | {rest} |")
        keys[f"ttft_p50_error_ms_{streams}"] = round(s.p50_error_ms, 3)
        keys[f"ttft_p99_error_ms_{streams}"] = round(s.p99_error_ms, 3)
        keys[f"us_per_chunk_{streams}"] = round(s.us_per_chunk, 2)
        keys[f"overhead_s_{streams}"] = round(s.overhead_s, 3)
    if 128 in found:
        keys["us_per_chunk"] = keys["us_per_chunk_128"]
    if arguments.peers:
        keys |= beside(found, arguments.peer_rounds)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(keys, indent=1) + "\n")


if __name__ == "__main__":
    main()
