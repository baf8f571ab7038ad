"""`make bench-stages`: what a stage of one's own costs, and what batches and the fork server bring.

A no-op stage by the whole path, door and worker, beside LitServe with the same no-op (its default
queue and its fast one; the cheaper counts), in interleaved rounds. Starts of a stage with heavy
imports, spawned and forked. The examples' models with items together and one at a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from measures import ask_together, cpu_us, embeddings_per_s, p99, start_s
from servers import litserve, preroll, stage

PYTHON = Path(".cache/litserve/bin/python").absolute()
IMPORTS = '["numpy", "pandas", "scipy.optimize", "scipy.signal", "scipy.stats", "sympy"]'
CHUNKS = 200
Figures = dict[str, float]


def costs(folder: Path, rounds: int, scale: float) -> Figures:
    """CPU per request and per chunk, c = 1 and 32; medians over interleaved rounds.

    `request_def` is that of a plain `def`, which takes a thread. LitServe's no-op is one too: the
    cheapest that it has (its async one costs more).
    """
    one = {"text": "hello"}
    many = {"stream": True, "chunks": CHUNKS}
    samples: dict[str, list[float]] = {}
    with ExitStack() as stack:
        stages = stage("noop", "noop:NoOp", max_concurrency="64")
        stages += stage("plain", "noop:Plain", max_concurrency="64")
        ours, _ = stack.enter_context(preroll(folder / "noop", stages))
        peers = {
            (kind, queue): stack.enter_context(litserve(PYTHON, kind, queue))
            for kind in ("whole", "stream")
            for queue in ("default", "fast")
        }
        for _ in range(rounds):
            for clients in (1, 32):
                amount = round((1000 if clients == 1 else 3000) * scale)
                for name, path in (("request", "/noop/x"), ("request_def", "/plain/x")):
                    both = cpu_us(ours, path, one, clients, amount)
                    add(samples, f"{name}_c{clients}", both[0])
                    add(samples, f"{name}_c{clients}_door", both[1])
                streams = max(clients, round(40 * scale))
                both = cpu_us(ours, "/noop/x", many, clients, streams)
                add(samples, f"chunk_c{clients}", both[0] / CHUNKS)
                add(samples, f"chunk_c{clients}_door", both[1] / CHUNKS)
                for (kind, queue), peer in peers.items():
                    is_whole = kind == "whole"
                    body, count = (one, amount // 4) if is_whole else (many, max(clients, 10))
                    us, _ = cpu_us(peer, "/predict", body, clients, count)
                    name = f"litserve_{'request' if is_whole else 'chunk'}_c{clients}_{queue}"
                    add(samples, name, us if is_whole else us / CHUNKS)
    return {f"us_{name}": statistics.median(values) for name, values in samples.items()}


def add(samples: dict[str, list[float]], name: str, value: float) -> None:
    samples.setdefault(name, []).append(value)


def ratios(found: Figures) -> Figures:
    """Against the cheaper of LitServe's queues, in the worse of the two loads."""

    def least(unit: str) -> float:
        return min(
            min(found[f"us_litserve_{unit}_c{c}_{queue}"] for queue in ("default", "fast"))
            / found[f"us_{unit}_c{c}"]
            for c in (1, 32)
        )

    return {
        "us_per_request": found["us_request_c32"],
        "us_per_chunk": found["us_chunk_c32"],
        "ratio_litserve_request": least("request"),
        "ratio_litserve_chunk": least("chunk"),
    }


def starts(folder: Path, rounds: int) -> Figures:
    """Interleaved; medians."""
    own = {"python": f'"{PYTHON}"'}
    spawned, forked = [], []
    for i in range(rounds):
        spawned.append(start_s(folder / f"spawn{i}", own))
        forked.append(start_s(folder / f"fork{i}", {**own, "imports": IMPORTS}))
    spawn_s, fork_s = statistics.median(spawned), statistics.median(forked)
    return {"start_spawn_s": spawn_s, "start_fork_s": fork_s, "fork_over_spawn": fork_s / spawn_s}


def batches(folder: Path, rounds: int) -> Figures:
    """In-flight against one at a time, dynamic against none; one process each, one after the
    other in each round."""
    one_thread = '{ OPENBLAS_NUM_THREADS = "1" }'
    names = {"together": ("Tokens", "Embed"), "alone": ("TokensAlone", "EmbedAlone")}
    figures: Figures = {}
    for how, (tokens, embed) in names.items():
        stages = stage("tokens", f"batches:{tokens}", max_concurrency="8", env=one_thread)
        stages += stage("embed", f"batches:{embed}", max_concurrency="64", env=one_thread)
        stages += '[[route]]\npath = "/v1/embeddings"\nstage = "embed"\n'
        with preroll(folder / how, stages) as (server, _):
            firsts: list[float] = []
            rates: list[float] = []
            for _ in range(rounds):
                bodies = [
                    {"text": "Say something.", "tokens": 150 + 50 * (i % 3)} for i in range(64)
                ]
                firsts += ask_together(server, "/tokens/x", bodies, 8)
                rates.append(embeddings_per_s(server, "/v1/embeddings", 300, 32))
        figures[f"ttft_p99_s_{how}"] = p99(firsts)
        figures[f"embeddings_per_s_{how}"] = statistics.median(rates)
    figures["inflight_p99_ttft_gain"] = figures["ttft_p99_s_alone"] / figures["ttft_p99_s_together"]
    figures["dynamic_throughput_gain"] = (
        figures["embeddings_per_s_together"] / figures["embeddings_per_s_alone"]
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the work of a round")
    parser.add_argument("--only", choices=("costs", "starts", "batches"))
    options = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON}: LitServe is not installed; run this by `make bench-stages`")
    out = Path("build/bench/stages.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    figures: Figures = json.loads(out.read_text()) if options.only and out.exists() else {}
    with tempfile.TemporaryDirectory(prefix="stages-") as name:
        folder = Path(name)
        parts: dict[str, Callable[[], Figures]] = {
            "costs": lambda: costs(folder, options.rounds, options.scale),
            "starts": lambda: starts(folder, options.rounds),
            "batches": lambda: batches(folder, options.rounds),
        }
        for part, measure in parts.items():
            if options.only in (None, part):
                figures |= measure()
                if part == "costs":
                    figures |= ratios(figures)
                out.write_text(json.dumps(figures, indent=1) + "\n")
    for key, value in figures.items():
        print(f"{key:34}{value:12.4g}")


if __name__ == "__main__":
    main()
