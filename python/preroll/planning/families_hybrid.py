"""Caches of hybrids (recurrent layers between attention layers) and of encoder–decoders."""

from __future__ import annotations

from preroll.errors import InputError
from preroll.planning.config_reader import Fields
from preroll.planning.formulas.kv import KvLayout, SequenceState, TokenCache


def qwen_hybrid(f: Fields) -> KvLayout:
    """Gated delta-net layers (convolution and matrix state) and full attention every nth."""
    kinds = ("full_attention", "linear_attention")
    if f.has("layer_types"):
        full = f.words("layer_types", kinds, f.layers).count("full_attention")
    else:
        full = f.layers // f.count("full_attention_interval", default=4)
    key_heads, value_heads = f.count("linear_num_key_heads"), f.count("linear_num_value_heads")
    key, value = f.count("linear_key_head_dim"), f.count("linear_value_head_dim")
    convolved = 2 * key_heads * key + value_heads * value
    elements = convolved * (f.count("linear_conv_kernel_dim") - 1) + value_heads * key * value
    states = (SequenceState(f.layers - full, elements, value_heads),)
    return KvLayout((TokenCache(full, f.kv_heads, 2 * f.head_dim),), states)


def nemotron_h(f: Fields) -> KvLayout:
    """Mamba-2 layers M, attention layers *, feed-forward - and experts E, in one pattern."""
    pattern = f.values.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) != f.layers or set(pattern) - set("M*E-"):
        raise InputError(
            f"{f.source}: hybrid_override_pattern must be {f.layers} characters out of 'M*E-'"
        )
    heads, width = f.count("mamba_num_heads"), f.count("mamba_head_dim")
    state = f.count("ssm_state_size")
    convolved = heads * width + 2 * f.count("n_groups") * state
    elements = convolved * (f.count("conv_kernel") - 1) + heads * width * state
    attention = TokenCache(pattern.count("*"), f.kv_heads, 2 * f.head_dim)
    return KvLayout((attention,), (SequenceState(pattern.count("M"), elements, heads),))


def kimi_linear(f: Fields) -> KvLayout:
    """Delta-attention layers with a matrix state per head, latent attention in the others."""
    linear = f.table("linear_attn_config")
    recurrent = _listed(linear, "kda_layers", f.layers)
    full = _listed(linear, "full_attn_layers", f.layers)
    if recurrent + full != f.layers:
        raise InputError(
            f"{linear.source}: {recurrent} kda_layers and {full} full_attn_layers do not make"
            f" {f.layers} layers"
        )
    heads, width = linear.count("num_heads"), linear.count("head_dim")
    convolved = 3 * heads * width
    elements = convolved * (linear.count("short_conv_kernel_size") - 1) + heads * width * width
    latent = f.count("kv_lora_rank") + f.count("qk_rope_head_dim")
    states = (SequenceState(recurrent, elements, heads),)
    return KvLayout((TokenCache(full, 0, latent),), states)


def whisper(f: Fields) -> KvLayout:
    """Decoder self-attention grows per token; cross attention is fixed by the padded window."""
    layers, heads = f.count("decoder_layers"), f.count("decoder_attention_heads")
    width = f.count("d_model")
    if width % heads:
        raise InputError(f"{f.source}: d_model {width} does not divide by {heads} decoder heads")
    cross = SequenceState(layers, 2 * width * f.count("max_source_positions"), heads)
    return KvLayout((TokenCache(layers, heads, 2 * (width // heads)),), (cross,))


def _listed(f: Fields, key: str, layers: int) -> int:
    value = f.values.get(key)
    if not isinstance(value, list) or len(value) > layers or len(set(map(str, value))) < len(value):
        raise InputError(f"{f.source}: {key} must be a list of at most {layers} distinct layers")
    return len(value)
