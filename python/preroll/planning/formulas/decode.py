"""Decode at the memory's speed: step time, a stream's speed, the batch that holds a target."""

from __future__ import annotations

from preroll.planning.formulas.check import number, positive, whole


def memory_step_s(weight_bytes: float, kv_bytes: float, bandwidth: float) -> float:
    """Least seconds of one decode step: (W + Σ c·k)/BW.

    `weight_bytes`: read once per step, all devices; `kv_bytes`: cache of the whole batch;
    `bandwidth`: bytes/s of all devices. Valid while memory is the limit: compare
    `compute_step_s`. Ignores launches, communication and prefill in the batch, so it is a floor.
    Source: Pope et al., Efficiently Scaling Transformer Inference (2022).
    """
    size = positive("weight bytes", weight_bytes) + number("KV bytes", kv_bytes, 0.0)
    return size / positive("bandwidth", bandwidth)


def compute_step_s(batch: float, active_parameters: float, flops: float) -> float:
    """Least seconds of arithmetic of one step: B·2P/peak (a multiply and an add per weight).

    `flops`: dense peak of all devices in FLOP/s. Ignores attention's own products.
    """
    work = number("batch", batch, 0.0, 1e9) * 2.0 * positive("parameters", active_parameters)
    return work / positive("flops", flops)


def stream_tokens_per_s(
    batch: int, weight_bytes: float, kv_bytes_per_sequence: float, bandwidth: float
) -> float:
    """Tokens/s of each stream in a batch: BW/(W + B·c·k). Valid and ignoring as `memory_step_s`.

    Reference: 141 GB, 4,096 tokens of 327,680 bytes, 26.8 TB/s: 190, 119, 55 at batch 1, 64, 256.
    """
    size = whole("batch", batch, 1, 10**7) * number("KV bytes", kv_bytes_per_sequence, 0.0)
    return 1.0 / memory_step_s(weight_bytes, size, bandwidth)


def largest_batch(
    tokens_per_s: float, weight_bytes: float, kv_bytes_per_sequence: float, bandwidth: float
) -> int:
    """Largest batch whose streams keep `tokens_per_s` by the same floor; 0 when none does.

    floor((BW/v − W)/(c·k)). Valid for kv_bytes_per_sequence > 0.
    """
    room = positive("bandwidth", bandwidth) / positive("tokens_per_s", tokens_per_s)
    each = positive("KV bytes per sequence", kv_bytes_per_sequence)
    return max(0, int((room - positive("weight bytes", weight_bytes)) / each))
