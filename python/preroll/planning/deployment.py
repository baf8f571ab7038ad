"""One replica as planned, and the seconds that physics gives to the parts of a step."""

from __future__ import annotations

from dataclasses import dataclass

from preroll.errors import InputError
from preroll.planning.catalogue import Device
from preroll.planning.formulas import kv
from preroll.planning.formulas.check import positive, whole
from preroll.planning.shape import ModelShape

ENGINES = ("vllm", "sglang", "trtllm")
WORKSPACE_PER_DEVICE = 35e9 / 8
"""Activations, graphs and communication buffers: the reference's 35 GB over 8 devices."""
USABLE = 0.9
TIGHT, TIGHT_WORKSPACE = 0.95, 2e9


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on `num_devices` devices of one node: tensor parallel, experts split `ep` ways."""

    shape: ModelShape
    device: Device
    num_devices: int
    engine: str = "vllm"
    ep: int = 1
    dp_attention: bool = False
    kv_dtype: str = "bf16"

    def __post_init__(self) -> None:
        whole("devices", self.num_devices, 1, 1024)
        whole("ep", self.ep, 1, self.num_devices)
        kv.dtype_bytes(self.kv_dtype)
        if self.engine not in ENGINES:
            raise InputError(f"--engine is {self.engine!r}; allowed: {', '.join(ENGINES)}")

    @property
    def bandwidth(self) -> float:
        return self.num_devices * self.device.memory_bandwidth

    @property
    def flops(self) -> float:
        return self.num_devices * self.device.flops(self.shape.precision)

    @property
    def kv_split(self) -> int:
        """Tensor-parallel size of attention: 1 where every device keeps its own sequences."""
        return 1 if self.dp_attention else self.num_devices

    @property
    def kv_parts(self) -> int:
        """Pools of KV memory that share no session."""
        return self.num_devices if self.dp_attention else 1

    def workspace(self) -> float:
        """Bytes kept for activations and graphs: 35/8 GB a device, at most 8 % of its memory.

        Source: the reference reserves 35 GB on 8 × 80 GB; smaller devices reserve in proportion.
        """
        return self.num_devices * min(WORKSPACE_PER_DEVICE, 0.08 * self.device.memory)

    def pool(self) -> float:
        """KV pool in bytes over all devices; InputError when the weights do not fit."""
        memory = self.num_devices * self.device.memory
        return kv.pool_bytes(memory, self.shape.weight_bytes, self.workspace(), USABLE)

    def sequences(self, context: float) -> float:
        """Sequences of `context` tokens (not rounded, >= 1) that a tightly set engine holds.

        For the speed model only: published runs take 95 % of the memory and leave 2 GB a device
        for workspace, and some fit on less than the cautious `pool` asks for.
        """
        memory = self.num_devices * (TIGHT * self.device.memory - TIGHT_WORKSPACE)
        each = kv.sequence_bytes(self.shape.layout, context, self.kv_dtype, self.kv_split)
        return max(1.0, (memory - self.shape.weight_bytes) / each)


def step_terms(d: Deployment, concurrency: float, isl: float, osl: float) -> dict[str, float]:
    """Seconds by part of one decode step in a closed loop of `concurrency` requests.

    isl, osl: input and output tokens per request. Sequences beyond the KV pool wait, so the batch
    is min(concurrency, what fits at 3/4 of the output). Each output token also carries its share
    of prefill, batch·isl/osl tokens, as in chunked prefill. `per_*` terms are counts times 1 µs
    or 10 µs, whose real cost the calibration finds. Valid: 1–8 devices of one node, all inputs
    positive. Ignores speculative decoding, prefix reuse and pipeline stages.
    Source: weights and KV over bandwidth as in `formulas.decode`; FLOP over peak; ring all-reduce.
    """
    s, n = d.shape, d.num_devices
    length, out = positive("isl", isl, 1e8), positive("osl", osl, 1e8)
    batch = min(positive("concurrency", concurrency, 1e6), d.sequences(length + 0.75 * out))
    dense, experts = s.read_bytes(batch)
    held = kv.sequence_bytes(s.layout, length + out / 2, d.kv_dtype, d.kv_split)
    fed = batch * length / out
    ring = 2 * s.layers * s.hidden * 2 * (n - 1) / n / d.device.link_bandwidth
    p, attention = s.parameters, 2 * s.full_layers * s.heads * s.qk_dim
    return {
        "weights": dense / d.bandwidth,
        "experts": experts / d.bandwidth,
        "kv": batch * held / d.bandwidth,
        "compute": batch * 2 * p.active / d.flops,
        "prefill": fed * 2 * p.active / d.flops,
        "prefill_attention": fed * length * attention / (n * d.device.flops_bf16),
        "per_layer": s.layers * 1e-6,
        "per_split_layer": s.layers * 1e-6 * (n > 1),
        "per_moe_layer": p.moe_layers * 1e-6,
        "per_ep_layer": p.moe_layers * 1e-6 * (d.ep > 1),
        "all_reduce": batch * ring,
        "prefill_all_reduce": fed * ring,
        "per_request": batch * 1e-5,
        "per_prefill": batch / out * 1e-3,
        "fixed": 1e-3,
    }


def first_token_terms(
    d: Deployment, concurrency: float, isl: float, osl: float
) -> dict[str, float]:
    """Seconds by part of the time to first token in a closed loop of `concurrency` requests.

    One prompt's own prefill, the share of a burst of all prompts at once, the wait for KV space
    when the pool holds fewer sequences than there are requests, and fixed costs.
    Valid and ignoring as `step_terms`; prompts that share a prefix are faster.
    """
    step = step_terms(d, concurrency, isl, osl)
    s, n = d.shape, d.num_devices
    read = step["weights"] + step["experts"] + step["kv"]
    room = d.sequences(isl + 0.75 * osl)
    waiting = max(0.0, concurrency - room) / room
    prompt = isl * 2 * s.parameters.active / d.flops
    attention = isl * isl * 2 * s.full_layers * s.heads * s.qk_dim / (n * d.device.flops_bf16)
    ring = 2 * s.layers * s.hidden * 2 * (n - 1) / n / d.device.link_bandwidth
    return {
        "prefill": prompt,
        "prefill_attention": attention,
        "burst": concurrency * prompt,
        "burst_attention": concurrency * attention,
        "kv_wait": waiting * osl * read,
        "weights": step["weights"] + step["experts"],
        "kv": step["kv"],
        "all_reduce": isl * ring,
        "per_layer": s.layers * 1e-6,
        "per_request": concurrency * 1e-5,
        "per_token": isl * 1e-6,
        "fixed": 1e-3,
    }
