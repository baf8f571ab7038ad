"""Memory over many requests: RSS of the door at the end against that at a tenth of the way.

Mixed work on purpose: answers, streams, cancels. Run by `make soak`; `--requests` and `--most` set
the amount and the allowed ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from door_bench import Bench, Door, replica, stage

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "door"))

from bench import start_mock
from processes import kill_tree, rss_mb
from scenarios import Scenario, chat
from scenarios import run as run_scenario

CONNECTIONS = 32
SHARE_OF_STREAMS = 0.1
PIECE = 10_000
"""Requests per run of the load client, which is bounded in time."""

CANCELS_PER_ROUND = 200
"""Clients that leave before their answer, between the rounds of whole requests."""


def cancel_some(door: Door, count: int) -> None:
    for number in range(count):
        fields = [("x-request-id", f"soak-{time.monotonic_ns()}-{number}")]
        door.chat("mock", fields, mock={"ttft_ms": 50}).close()
        door.wires.clear()


def one_round(load: str, door: Door, requests: int) -> None:
    for _ in range(max(1, requests // PIECE)):
        piece = min(requests, PIECE)
        streams = int(piece * SHARE_OF_STREAMS)
        plain = Scenario("plain", "request", chat(False, 4), CONNECTIONS, piece - streams)
        stream = Scenario("stream", "request", chat(True, 4), CONNECTIONS, streams)
        for scenario in (plain, stream):
            run_scenario(load, scenario, door.port, door.pid)
    cancel_some(door, CANCELS_PER_ROUND)
    door.wait_for_state(in_flight=0, queued=0)


def soak(load: str, requests: int, rounds: int) -> list[tuple[int, float]]:
    """(requests so far, RSS in MB) after each round."""
    bench = Bench()
    mock, backend = start_mock(load)
    try:
        table = stage(
            replica(f"tcp:127.0.0.1:{backend.port}", CONNECTIONS),
            models=("mock",),
            max_wait_ms=5000,
        )
        door = bench.door({"chat": table})
        points = []
        for round_ in range(1, rounds + 1):
            one_round(load, door, requests // rounds)
            points.append((round_ * requests // rounds, rss_mb(door.pid)))
            print(f"{points[-1][0]:>9} requests  {points[-1][1]:7.2f} MB", flush=True)
        return points
    finally:
        kill_tree(mock.pid)
        mock.wait()
        bench.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--most", type=float, default=1.05)
    default = Path(sys.executable).parent / "preroll-load"
    parser.add_argument("--load", default=str(default), help="the program preroll-load")
    arguments = parser.parse_args()
    points = soak(arguments.load, arguments.requests, 10)
    ratio = points[-1][1] / points[0][1]
    report = Path("build/bench/soak.json")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps({"points_mb": points, "rss_ratio": ratio}, indent=1) + "\n")
    print(f"RSS at {points[-1][0]} requests is {ratio:.3f} x that at {points[0][0]}")
    return 0 if ratio <= arguments.most else 1


if __name__ == "__main__":
    sys.exit(main())
