"""Which caches a family of models keeps. A family without an entry is refused, never guessed."""

from __future__ import annotations

from collections.abc import Callable

from preroll.errors import InputError
from preroll.planning.config_reader import Fields
from preroll.planning.families_hybrid import kimi_linear, nemotron_h, qwen_hybrid, whisper
from preroll.planning.formulas.kv import KvLayout, TokenCache

FULL, SLIDING = "full_attention", "sliding_attention"
CHUNKED = "chunked_attention"


def plain(f: Fields) -> KvLayout:
    """Grouped-query attention, every layer alike; a window when the config switches one on."""
    window = None
    if f.has("sliding_window") and f.flag("use_sliding_window", True):
        window = f.count("sliding_window")
    if window is not None and f.has("max_window_layers"):
        return _split(f, f.layers - min(f.layers, f.count("max_window_layers", low=0)), window)
    return KvLayout((TokenCache(f.layers, f.kv_heads, 2 * f.head_dim, window),))


def patterned(f: Fields) -> KvLayout:
    """Full and sliding layers by `layer_types`, or every nth layer full (Gemma, gpt-oss)."""
    window = f.count("sliding_window")
    if f.has("layer_types"):
        kinds = f.words("layer_types", (FULL, SLIDING), f.layers)
        return _split(f, kinds.count(SLIDING), window)
    every = f.count("sliding_window_pattern", "_sliding_window_pattern", default=_default_every(f))
    return _split(f, f.layers - f.layers // every, window)


def _default_every(f: Fields) -> int:
    known = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gpt_oss": 2}
    if f.model_type not in known:
        raise InputError(f"{f.source}: layer_types is missing; {f.model_type} needs it")
    return known[f.model_type]


def gemma4(f: Fields) -> KvLayout:
    """Sliding layers with their own heads; global layers with fewer and wider ones."""
    shared = f.count("num_kv_shared_layers", low=0, default=0)
    if shared >= f.layers:
        raise InputError(f"{f.source}: num_kv_shared_layers is {shared} of {f.layers} layers")
    own = f.words("layer_types", (FULL, SLIDING), f.layers)[: f.layers - shared]
    heads = f.count("num_global_key_value_heads", default=f.kv_heads)
    width = f.count("global_head_dim", default=f.head_dim)
    return KvLayout(
        (
            TokenCache(own.count(FULL), heads, 2 * width),
            TokenCache(own.count(SLIDING), f.kv_heads, 2 * f.head_dim, f.count("sliding_window")),
        )
    )


def llama4(f: Fields) -> KvLayout:
    """Every fourth layer global (no rotary embedding), the others attend within one chunk."""
    if f.has("layer_types"):
        chunked = f.words("layer_types", (FULL, CHUNKED), f.layers).count(CHUNKED)
    else:
        chunked = f.layers - f.layers // f.count("no_rope_layer_interval", default=4)
    return _split(f, chunked, f.count("attention_chunk_size"))


def mimo_v2(f: Fields) -> KvLayout:
    """Keys wider than values, and other heads in the sliding layers."""
    sliding = sum(f.bits("hybrid_layer_pattern", f.layers))
    full_width = f.count("head_dim") + f.count("v_head_dim")
    width = f.count("swa_head_dim") + f.count("swa_v_head_dim")
    heads = f.count("swa_num_key_value_heads")
    return KvLayout(
        (
            TokenCache(f.layers - sliding, f.kv_heads, full_width),
            TokenCache(sliding, heads, width, f.count("sliding_window")),
        )
    )


def mla(f: Fields) -> KvLayout:
    """Multi-head latent attention: one compressed latent and one rotary key per token, layer."""
    latent = f.count("kv_lora_rank") + f.count("qk_rope_head_dim")
    return KvLayout((TokenCache(f.layers, 0, latent, fixed_bytes=_indexer_bytes(f)),))


def _indexer_bytes(f: Fields) -> int:
    """Sparse attention's index key: fp8 values and one fp32 scale per 128 of them."""
    if not f.has("index_head_dim"):
        return 0
    width = f.count("index_head_dim")
    return width + 4 * -(-width // 128)


def _split(f: Fields, sliding: int, window: int) -> KvLayout:
    full = TokenCache(f.layers - sliding, f.kv_heads, 2 * f.head_dim)
    return KvLayout((full, TokenCache(sliding, f.kv_heads, 2 * f.head_dim, window)))


PLAIN = (
    "llama mistral mistral3 mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_vl_text qwen3_vl_moe_text"
    " phi3 olmo olmo2 granite granitemoe gemma glm glm4 glm4_moe smollm3 starcoder2 stablelm"
    " minimax_m2 gpt2 gpt_neox seed_oss ernie4_5"
)
FAMILIES: dict[str, Callable[[Fields], KvLayout]] = {
    **dict.fromkeys(PLAIN.split(), plain),
    **dict.fromkeys(["gemma2", "gemma3", "gemma3_text", "gpt_oss"], patterned),
    **dict.fromkeys(["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa"], mla),
    **dict.fromkeys(["gemma4", "gemma4_text"], gemma4),
    **dict.fromkeys(["llama4", "llama4_text"], llama4),
    "mimo_v2_flash": mimo_v2,
    **dict.fromkeys(
        ["qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"], qwen_hybrid
    ),
    "nemotron_h": nemotron_h,
    **dict.fromkeys(["kimi_k3", "kimi_linear"], kimi_linear),
    "whisper": whisper,
}
REFUSED_KEYS = ("compress_ratios", "cla_share_factor", "num_memory_blocks", "ssm_cfg")
"""Config keys of cache schemes that no formula here covers, whatever the family is called."""


def layout_of(f: Fields) -> KvLayout:
    """The caches of one model; InputError names a family or a scheme that has no formula."""
    scheme = next((key for key in REFUSED_KEYS if f.has(key)), None)
    if scheme is not None:
        raise InputError(
            f"{f.source}: {f.model_type} with {scheme} has no KV formula here, and none is"
            " guessed; measure the pool with the engine's own start-up line"
        )
    if f.model_type not in FAMILIES:
        raise InputError(
            f"{f.source}: the family {f.model_type!r} has no KV formula here, and none is guessed;"
            f" known: {', '.join(sorted(FAMILIES))}"
        )
    return FAMILIES[f.model_type](f)
