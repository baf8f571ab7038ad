"""KV cache bytes: what one token, one sequence and one device hold."""

from __future__ import annotations

from dataclasses import dataclass

from preroll.errors import InputError
from preroll.planning.formulas.check import number, positive, whole

DTYPE_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
}
"""Bytes per cached element, block scales included (llama.cpp q8_0 and q4_0: 32 values and a half;
nvfp4: 16 values and one fp8 scale; fp8 and int8 with per-tensor or per-head scales, ~0)."""


@dataclass(frozen=True, slots=True)
class TokenCache:
    """Layers that keep `elements` values per token and head.

    `heads` 0: one copy that tensor parallelism cannot split (a latent). `window`: the newest
    tokens kept, None is all. `fixed_bytes`: extra bytes per token and layer of a cache whose
    format does not follow the KV dtype (the sparse indexer's fp8 keys).
    """

    layers: int
    heads: int
    elements: int
    window: int | None = None
    fixed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SequenceState:
    """Layers that keep a state of fixed size per sequence, whatever its length.

    `elements` values in the KV dtype per layer (convolution and recurrent state, or cross
    attention over a padded encoder window); `heads` bounds how far tensor parallelism splits it.
    """

    layers: int
    elements: int
    heads: int


@dataclass(frozen=True, slots=True)
class KvLayout:
    """The caches of one model."""

    tokens: tuple[TokenCache, ...]
    states: tuple[SequenceState, ...] = ()


def dtype_bytes(dtype: str) -> float:
    """Bytes per element of a KV dtype by its name; InputError lists the known ones."""
    if dtype not in DTYPE_BYTES:
        raise InputError(f"KV dtype {dtype!r} is unknown; known: {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def copies(heads: int, tp: int) -> float:
    """How many times a cache of `heads` heads is held over `tp` devices: max(1, padded/heads).

    Heads below tp are replicated (tp/heads copies); heads that do not divide are padded to
    the next multiple; a latent (heads 0) is held tp times. Source: vLLM's and TensorRT-LLM's
    head placement. Ignores data-parallel attention, which holds a latent once.
    """
    size = whole("tp", tp, 1, 1024)
    if heads == 0:
        return float(size)
    per_device = max(1, -(-heads // size))
    return per_device * size / heads


def token_bytes(layout: KvLayout, dtype: str = "bf16", tp: int = 1) -> float:
    """Bytes that one more token of an unbounded context adds, over all `tp` devices together.

    Sum over full layers of L·heads·elements·b (GQA: elements = 2·head_dim, so 2·L·Hkv·d·b;
    MLA: L·(rank + rope)·b). Windowed layers add nothing once full: see `window_bytes`.
    Ignores block rounding (at most one block per sequence). Source: the architectures' papers.
    """
    return sum(_per_token(c, dtype, tp) for c in layout.tokens if c.window is None)


def window_bytes(layout: KvLayout, dtype: str = "bf16", tp: int = 1) -> float:
    """Bytes per token of the windowed layers, while the sequence is shorter than the window."""
    return sum(_per_token(c, dtype, tp) for c in layout.tokens if c.window is not None)


def fixed_bytes(layout: KvLayout, dtype: str = "bf16", tp: int = 1) -> float:
    """Bytes per sequence that do not depend on its length, over all `tp` devices.

    States are counted in the KV dtype for floats of 16 bits or more and in 2 bytes otherwise:
    engines do not quantise them. An engine that keeps a recurrent state in fp32 needs up to
    twice as much.
    """
    width = max(2.0, dtype_bytes(dtype))
    return sum(s.layers * s.elements * width * copies(s.heads, tp) for s in layout.states)


def sequence_bytes(layout: KvLayout, context: float, dtype: str = "bf16", tp: int = 1) -> float:
    """Bytes of one sequence of `context` tokens over all devices: fixed + Σ min(c, window)·bytes.

    Valid: 0 <= context <= 1e9. Ignores a hybrid allocator's page padding and engines that do not
    free tokens outside the window (those hold windowed layers in full).
    """
    length = number("context", context, 0.0, 1e9)
    held = sum(
        min(length, c.window if c.window is not None else length) * _per_token(c, dtype, tp)
        for c in layout.tokens
    )
    return held + fixed_bytes(layout, dtype, tp)


def pool_bytes(memory: float, weights: float, workspace: float, usable: float = 0.9) -> float:
    """KV pool = usable·memory − weights − workspace, in bytes, summed over the devices.

    `usable` in (0, 1]: the share an engine may take. A pool <= 0 is an InputError: the model does
    not fit. Source: the reference, .9·640 − 141 − 35 GB = 400 GB.
    """
    share = positive("usable share", usable, 1.0)
    free = share * positive("memory", memory) - number("weights", weights, 0.0)
    pool = free - number("workspace", workspace, 0.0)
    if pool <= 0.0:
        raise InputError(
            f"the model does not fit: {share:g} of {memory / 1e9:.1f} GB less"
            f" {weights / 1e9:.1f} GB weights and {workspace / 1e9:.1f} GB workspace leaves"
            f" {pool / 1e9:.1f} GB for the KV cache; use more devices or a smaller dtype"
        )
    return pool


def capacity_sessions(
    layout: KvLayout,
    pool: float,
    context: int,
    dtype: str = "bf16",
    tp: int = 1,
    parts: int = 1,
) -> int:
    """Whole sessions of `context` tokens in `pool` bytes: parts·floor(pool/parts/sequence_bytes).

    `parts`: pools that share no session (data-parallel attention has one per device).
    Valid: context >= 1. Ignores shared prefixes, which let more sessions in.
    """
    length, pools = whole("context", context, 1, 10**9), whole("parts", parts, 1, 1024)
    each = sequence_bytes(layout, length, dtype, tp)
    return pools * int(positive("pool", pool) / pools // each)


def _per_token(cache: TokenCache, dtype: str, tp: int) -> float:
    per_layer = max(cache.heads, 1) * cache.elements * dtype_bytes(dtype) + cache.fixed_bytes
    return cache.layers * per_layer * copies(cache.heads, tp)
