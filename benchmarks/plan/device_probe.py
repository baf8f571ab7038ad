"""One accelerator, measured: what hardware.toml takes from data sheets, and one decode step.

    python benchmarks/plan/device_probe.py        needs torch with CUDA; under a minute; prints JSON

Rates are medians over rounds, in bytes/s and FLOP/s. The step is one token of a dense transformer
of random bf16 weights with a KV cache, captured in a CUDA graph, beside its memory floor.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch
from torch.nn import functional

ROUNDS = 7
COPY_BYTES = 2 << 30
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS = 4096, 32, 8, 128, 14336, 32
"""The layers of an 8 B model: 6.98 B parameters without embeddings."""
CONTEXT = 4096
BATCHES = (1, 16, 64)


def seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """Median seconds of one `work` on the device, over ROUNDS of `repeat`."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeat):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / repeat)
    return statistics.median(times)


def transfers() -> dict[str, float]:
    """Host to device from pinned and from pageable memory, device to host, and inside the device
    (read plus write)."""
    device = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(device)
    pageable = torch.ones(COPY_BYTES // 4, dtype=torch.uint8)
    begin = time.perf_counter()
    pinned = torch.ones(COPY_BYTES, dtype=torch.uint8).pin_memory()
    pinning_s = time.perf_counter() - begin
    quarter = device[: pageable.numel()]
    return {
        "pinned_to_device": COPY_BYTES / seconds(lambda: device.copy_(pinned, non_blocking=True)),
        "device_to_pinned": COPY_BYTES / seconds(lambda: pinned.copy_(device, non_blocking=True)),
        "pageable_to_device": pageable.numel() / seconds(lambda: quarter.copy_(pageable)),
        "device_copy_read_plus_write": 2 * COPY_BYTES / seconds(lambda: other.copy_(device), 5),
        "pin_host_memory": COPY_BYTES / pinning_s,
    }


def reading() -> float:
    """Bytes/s of a matrix–vector product: the nearest to a decode step's weight reads."""
    matrix = torch.randn(65536, 16384, dtype=torch.bfloat16, device="cuda")
    vector = torch.randn(16384, 1, dtype=torch.bfloat16, device="cuda")
    return matrix.numel() * 2 / seconds(lambda: matrix @ vector, 10)


def matmul() -> dict[str, float]:
    """FLOP/s of square products in bf16, and in fp8 where the device has it."""
    n = 8192
    a, b = (torch.randn(n, n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    found = {"flops_bf16": 2 * n**3 / seconds(lambda: a @ b, 10)}
    try:
        x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
        one = torch.ones((), device="cuda")
        work = lambda: torch._scaled_mm(  # noqa: E731
            x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
        found["flops_fp8"] = 2 * n**3 / seconds(work, 10)
    except (RuntimeError, AttributeError) as error:
        found["flops_fp8_error"] = str(error)[:200]  # type: ignore[assignment]
    return found


class Layer:
    """One decoder layer's decode step: grouped-query attention over a full cache, gated FFN."""

    def __init__(self, batch: int) -> None:
        def weight(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, dtype=torch.bfloat16, device="cuda") * 0.02

        width = (HEADS + 2 * KV_HEADS) * HEAD_DIM
        self.qkv, self.out = weight(width, HIDDEN), weight(HIDDEN, HEADS * HEAD_DIM)
        self.gate_up, self.down = weight(2 * FFN, HIDDEN), weight(HIDDEN, FFN)
        self.norm = torch.ones(HIDDEN, dtype=torch.bfloat16, device="cuda")
        self.keys, self.values = (weight(batch, KV_HEADS, CONTEXT, HEAD_DIM) for _ in range(2))

    @property
    def num_bytes(self) -> int:
        tensors = (self.qkv, self.out, self.gate_up, self.down, self.keys, self.values)
        return sum(t.numel() * 2 for t in tensors)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        normed = functional.rms_norm(x, (HIDDEN,), self.norm)
        query = functional.linear(normed, self.qkv)[:, : HEADS * HEAD_DIM]
        query = query.view(-1, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
        mixed = functional.scaled_dot_product_attention(query, self.keys, self.values)
        x = x + functional.linear(mixed.reshape(x.shape[0], -1), self.out)
        gate, up = functional.linear(
            functional.rms_norm(x, (HIDDEN,), self.norm), self.gate_up
        ).chunk(2, dim=-1)
        return x + functional.linear(functional.silu(gate) * up, self.down)


def decode_step(batch: int) -> dict[str, float]:
    """Seconds of one step of LAYERS layers at CONTEXT tokens each, and its bytes."""
    layers = [Layer(batch) for _ in range(LAYERS)]
    x = torch.randn(batch, HIDDEN, dtype=torch.bfloat16, device="cuda")

    def step() -> torch.Tensor:
        y = x
        for layer in layers:
            y = layer.step(y)
        return y

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    eager_s, graph_s = seconds(step, 3), seconds(graph.replay, 10)
    moved = sum(layer.num_bytes for layer in layers)
    return {
        "batch": batch,
        "eager_s": eager_s,
        "graph_s": graph_s,
        "bytes": moved,
        "bytes_per_s": moved / graph_s,
    }


@torch.inference_mode()
def main() -> None:
    begin = time.perf_counter()
    properties = torch.cuda.get_device_properties(0)
    result: dict[str, Any] = {
        "device": properties.name,
        "memory": properties.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "transfer_bytes_per_s": transfers(),
        "matrix_vector_bytes_per_s": reading(),
        **matmul(),
        "step_of_8b_at_4096": [],
    }
    for batch in BATCHES:
        torch.cuda.empty_cache()
        result["step_of_8b_at_4096"].append(decode_step(batch))
    result["took_s"] = time.perf_counter() - begin
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
