"""`make bench-startup`: is what the start instruments say true? A worker with planted truths,
A/A runs, predictions against ablations, overhead, other tools beside it."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import evidence
import overhead
import peers

ROOT = Path(__file__).resolve().parents[2]
Figures = dict[str, float]


def parts(folder: Path, rounds: int, cold_mb: int) -> dict[str, Callable[[], Figures]]:
    place = evidence.cold_place(folder, cold_mb << 20)
    return {
        "root": lambda: evidence.truth(place, rounds, as_nobody=False) if is_root() else {},
        "user": lambda: evidence.truth(place, rounds, as_nobody=is_root()),
        "aa": lambda: evidence.same_against_same(place),
        "exclusive": lambda: evidence.predictions(place, 6),
        "overhead": lambda: overhead.overhead(5 * rounds),
        "peers": lambda: peers.beside(place, rounds),
    }


def is_root() -> bool:
    return os.geteuid() == 0


def lies(figures: Figures) -> Figures:
    """Planted and missed over all runs of both users, under the names of the record."""
    kinds = [kind for kind in ("root", "user") if f"lies_planted_{kind}" in figures]
    planted = sum(figures[f"lies_planted_{kind}"] for kind in kinds)
    missed = sum(figures[f"lies_missed_{kind}"] for kind in kinds)
    return {"lies_planted": planted, "lies_missed": missed} if kinds else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold-mb", type=int, default=500)
    parser.add_argument("--only", nargs="*", help="parts to measure; the others' figures stay")
    arguments = parser.parse_args()
    target = ROOT / "build" / "bench" / "startup.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    figures: Figures = json.loads(target.read_text()) if target.exists() else {}
    with tempfile.TemporaryDirectory(prefix="preroll-bench-", dir="/var/tmp") as folder:
        for name, part in parts(Path(folder), arguments.rounds, arguments.cold_mb).items():
            if arguments.only and name not in arguments.only:
                continue
            new = part()
            for key, value in new.items():
                print(f"{name:<10}{key:<28}{value:12.4f}", flush=True)
            figures |= new
            figures |= lies(figures)
            target.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    print(f"load average {os.getloadavg()[0]:.1f}; {target.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
