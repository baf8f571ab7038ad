"""`make bench-door`: the door beside HAProxy, nginx and sglang-router in interleaved rounds.

CPU microseconds of the front door's process tree per unit of work; medians over rounds, because
neighbours on the machine come and go. `direct` is the backend itself, for latency.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cancel import cancel_ms
from processes import kill_tree, pin
from scenarios import Sample, Scenario, all_scenarios, direct, run
from targets import STARTERS, MissingError, Target

Samples = dict[tuple[str, str], list[Sample]]


def separate() -> set[int] | None:
    """Gives the front doors a core of their own; returns it, None on a single-core machine.

    Client and backend keep the others, the same for every front door. On a shared core each answer
    that a door writes wakes the client, which then preempts the door or not, as the scheduler has
    it: the same program cost 34 or 57 µs per request. `--no-pin` measures that.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return None
    os.sched_setaffinity(0, set(cpus[1:]))
    return {cpus[0]}


def start_mock(program: str) -> tuple[subprocess.Popen[bytes], Target]:
    command = [program, "mock", "--spread", "true", "--max-buffered-body", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["listening"][0]
    return process, Target("mock", int(address.rpartition(":")[2]), process.pid)


def start_targets(
    arguments: argparse.Namespace, backend: Target, folder: Path, targets: list[Target]
) -> None:
    """Appends what starts to `targets`, so that a later failure leaves nothing running."""
    programs = {
        "door": arguments.door,
        "haproxy": "haproxy",
        "nginx": "nginx",
        "sglang": arguments.sglang,
    }
    targets.append(direct(backend))
    for name in arguments.targets:
        try:
            targets.append(STARTERS[name](programs[name], backend.port, folder))
            if arguments.core is not None:
                pin(targets[-1].pid, arguments.core)
        except MissingError as error:
            print(f"skipped: {error}")


def measure(arguments: argparse.Namespace, targets: list[Target], folder: Path) -> Samples:
    samples: Samples = {}
    wanted = [s for s in all_scenarios(folder, arguments.scale) if s.name in arguments.scenarios]
    for round_number in range(arguments.rounds):
        for scenario in wanted:
            for target in targets:
                _one(arguments.load, scenario, target, samples, round_number)
    return samples


def _one(
    program: str, scenario: Scenario, target: Target, samples: Samples, round_number: int
) -> None:
    try:
        sample = run(program, scenario, target.port, target.pid)
    except RuntimeError as error:
        if round_number == 0:
            print(f"{target.name}, {scenario.name}: no figure: {error}")
        return
    samples.setdefault((target.name, scenario.name), []).append(sample)
    figures = f"{sample.us_per_unit:.1f} us, p50 {sample.p50_us:.0f} us"
    reads = f"{sample.events_per_read:.2f} events a read"
    label = f"{round_number} {scenario.name} {target.name}"
    print(f"{label}: {figures}, {reads}", file=sys.stderr)


def usable(samples: Samples, scenario: str, rounds: int) -> list[int]:
    """Rounds in which every target was measured and, for paced streams, chunks came alone.

    When no round is clean all are used, and the caller says so.
    """
    runs = [s for (_, name), s in samples.items() if name == scenario]
    whole = [i for i in range(rounds) if all(len(r) > i for r in runs)]
    if scenario != "paced":
        return whole
    return [i for i in whole if not any(r[i].is_coalesced for r in runs)] or whole


def clean(samples: Samples, rounds: int) -> tuple[Samples, list[str]]:
    """The samples of usable rounds, and what has to be said about the others."""
    notes, kept = [], dict(samples)
    for key in samples:
        chosen = usable(samples, key[1], rounds)
        if chosen:
            kept[key] = [samples[key][i] for i in chosen]
    paced = [s for (_, name), found in kept.items() if name == "paced" for s in found]
    if any(s.is_coalesced for s in paced):
        worst = max(s.events_per_read for s in paced)
        notes.append(f"NOT PACED: up to {worst:.1f} chunks a read; the machine was too busy")
    return kept, notes


def median(samples: Samples, target: str, scenario: str, field: str) -> float | None:
    found = samples.get((target, scenario))
    return statistics.median(getattr(s, field) for s in found) if found else None


def ratio(samples: Samples, peer: str, scenario: str) -> float | None:
    """Median over rounds of door / peer; rounds are paired, so drift of the machine cancels."""
    ours, theirs = samples.get(("door", scenario)), samples.get((peer, scenario))
    if not ours or not theirs:
        return None
    pairs = zip(ours, theirs, strict=False)
    return statistics.median(a.us_per_unit / b.us_per_unit for a, b in pairs)


def results(samples: Samples) -> dict[str, float]:
    def cost(scenario: str) -> float | None:
        return median(samples, "door", scenario, "us_per_unit")

    alone, bare = (median(samples, t, "alone", "p50_us") for t in ("door", "direct"))
    found = {
        "us_per_request": cost("request"),
        "us_per_chunk_paced": cost("paced"),
        "us_per_chunk_unpaced": cost("unpaced"),
        "added_p50_us": alone - bare if alone is not None and bare is not None else None,
        "rss_mb": median(samples, "door", "paced", "rss_mb"),
        "ratio_haproxy_request": ratio(samples, "haproxy", "request"),
        "ratio_haproxy_paced": ratio(samples, "haproxy", "paced"),
        "ratio_sglang_request": ratio(samples, "sglang", "request"),
        "ratio_sglang_paced": ratio(samples, "sglang", "paced"),
        "us_per_request_32k_tokens": cost("prompt_32k"),
        "us_per_mb_upload": cost("upload"),
    }
    return {name: round(value, 3) for name, value in found.items() if value is not None}


def table(samples: Samples, targets: list[Target]) -> str:
    scenarios = list(dict.fromkeys(name for _, name in samples))
    lines = ["| CPU µs of the front door | " + " | ".join(t.name for t in targets) + " |"]
    lines.append("|---" * (len(targets) + 1) + "|")

    def row(label: str, scenario: str, field: str) -> str:
        values = [median(samples, t.name, scenario, field) for t in targets]
        cells = ["–" if v is None else f"{v:.1f}" for v in values]
        return f"| {label} | " + " | ".join(cells) + " |"

    lines += [row(f"{name}, per unit", name, "us_per_unit") for name in scenarios]
    if "alone" in scenarios:
        lines.append(row("alone, p50 latency µs", "alone", "p50_us"))
    if "paced" in scenarios:
        lines.append(row("paced, RSS MB", "paced", "rss_mb"))
    return "\n".join(lines)


def cancels(arguments: argparse.Namespace) -> dict[str, float]:
    """How long a client's leaving takes to reach the replica through the door, ms."""
    found = {phase: cancel_ms(arguments.door, phase) for phase in ("prefill", "stream")}
    for phase, taken in found.items():
        print(f"cancel in {phase}: p50 {statistics.median(taken):.2f} ms, max {max(taken):.2f} ms")
    return {"cancel_ms": round(max(t for taken in found.values() for t in taken), 3)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--door", default=".venv/bin/preroll-door")
    parser.add_argument("--load", default=".venv/bin/preroll-load")
    parser.add_argument("--sglang", default=".cache/sglang/bin/python")
    parser.add_argument("--targets", nargs="*", default=["haproxy", "door", "nginx", "sglang"])
    names = ["request", "paced", "unpaced", "alone", "prompt_32k", "upload", "cancel"]
    parser.add_argument("--scenarios", nargs="*", default=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path("build/bench/door.json"))
    help_ = "front doors on a core of their own, client and backend on the others"
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True, help=help_)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    arguments.core = separate() if arguments.pin else None
    with tempfile.TemporaryDirectory(prefix="door-bench-") as name:
        folder = Path(name)
        mock, backend = start_mock(arguments.load)
        targets: list[Target] = []
        try:
            start_targets(arguments, backend, folder, targets)
            samples = measure(arguments, targets, folder)
            cancelled = cancels(arguments) if "cancel" in arguments.scenarios else {}
        finally:
            for target in targets:
                if target.name != "direct":
                    kill_tree(target.pid)
            mock.kill()
            mock.wait()
    samples, notes = clean(samples, arguments.rounds)
    found = results(samples) | cancelled
    print(table(samples, targets))
    for note in notes:
        print(note)
    print(json.dumps(found, indent=1))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
