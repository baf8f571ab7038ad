"""Parts 8 and 9 of a plan: determinism, and the tail over many calls."""

from __future__ import annotations

from preroll.planning.formulas import tail
from preroll.planning.report import Line, Part, percent, plural
from preroll.planning.sizing import Sizing

INVARIANT = {
    "vllm": "VLLM_BATCH_INVARIANT=1 in the environment",
    "sglang": "--enable-deterministic-inference",
    "trtllm": "none documented: give the lane max_concurrency = 1",
}


def determinism(sizing: Sizing) -> Part:
    d = sizing.ask.deployment
    shapes = sizing.max_concurrency
    lines = [
        Line(
            "batch sizes a request may meet",
            f"1 to {shapes}: same prompt, other last bits",
            float(shapes),
        ),
        Line("batch-invariant kernels", INVARIANT[d.engine]),
        Line("also changes the bits", _changes(d.num_devices, d.shape.parameters.experts)),
        Line("advice", "a separate stage for evals, audits and caches; not a global default"),
    ]
    return Part(
        "determinism",
        "Determinism",
        "(a + b) + c ≠ a + (b + c): the order of a reduction follows the batch size",
        f"{d.engine}, {plural(d.num_devices, 'device')}, {d.shape.precision}",
        lines,
        "advice, no formula: the share of prompts that differ is measured, not computed",
    )


def _changes(devices: int, experts: int) -> str:
    causes = ["engine version", "device", "KV and weight dtype", "prefix cache hit or miss"]
    if devices > 1:
        causes.insert(0, "tensor-parallel size")
    if experts:
        causes.append("expert routing near a tie")
    return ", ".join(causes)


def many_calls(sizing: Sizing) -> Part:
    n = sizing.ask.calls
    lines = []
    for calls in sorted({1, n, 5 * n}):
        share = tail.meets_slow(calls)
        lines.append(Line(plural(calls, "call"), f"{percent(share)} meet a p99-slow one", share))
    needed = tail.percentile_needed(n, 0.05)
    lines.append(
        Line(
            f"for 5 % of runs of {n}",
            f"each call must be slow in at most {percent(needed)}: watch p{100 * (1 - needed):.4g}",
            needed,
        )
    )
    return Part(
        "tail",
        "Tail over n calls",
        "1 − (1−q)ⁿ",
        f"q = 1 % (beyond p99), n = {n} calls per user action",
        lines,
        "independent calls; in a sequence slow calls add up, in a fan-out the slowest counts",
    )
