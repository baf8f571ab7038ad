"""Parameter counts from a config: total, active per token, and the experts' part."""

from __future__ import annotations

import math
from dataclasses import dataclass

from preroll.errors import InputError
from preroll.planning.config_reader import Fields
from preroll.planning.formulas.check import number

UNGATED = frozenset(["gpt2", "gpt_neox", "starcoder2", "nemotron_h"])
"""Families whose feed-forward has two matrices; all others here have three (gate, up, down)."""

LATENT_EXPERT_KEYS = ("moe_latent_size", "routed_expert_hidden_size")
"""Experts that work in a narrower space: their size follows another rule."""

SHARED_KEYS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Counts of weights. `expert`: one expert of one layer; 0 experts is a dense model.
    `encoder`: an encoder's weights, used once per input and not per token.

    `embedding`: the input table (read one row per token); `head` is the output projection,
    which a tied model takes from the same bytes. Norms, biases and vision parts are left out
    (below 1 % in the families here).
    """

    attention: int
    feed_forward: int
    embedding: int
    head: int
    tied: bool
    expert: int = 0
    experts: int = 0
    experts_per_token: int = 0
    moe_layers: int = 0
    encoder: int = 0

    @property
    def routed(self) -> int:
        return self.expert * self.experts * self.moe_layers

    @property
    def dense(self) -> int:
        """Read in every step whatever the batch: all but the routed experts and the input table."""
        return self.attention + self.feed_forward + self.head

    @property
    def total(self) -> int:
        own_table = 0 if self.tied else self.embedding
        return self.dense + self.routed + self.encoder + own_table

    @property
    def active(self) -> int:
        """Parameters that one token multiplies with; 2 × this is its FLOP."""
        return self.dense + self.expert * self.experts_per_token * self.moe_layers

    def read_per_step(self, batch: float) -> float:
        """Expected parameters read by one decode step of `batch` tokens.

        Dense part plus the distinct experts hit: E·(1−(1−k/E)^B) per layer. Valid: batch >= 1,
        uniform routing; a skewed router reads fewer. Source: occupancy of balls in bins.
        """
        tokens = number("batch", batch, 0.0, 1e9)
        if not self.experts:
            return float(self.dense)
        hit = 1.0 - math.pow(1.0 - self.experts_per_token / self.experts, tokens)
        return self.dense + self.routed * hit


def count(f: Fields) -> ParameterCount:
    """Parameters of the model that `f` describes; InputError when a needed key is missing."""
    if f.model_type == "whisper":
        return _whisper(f)
    table = f.count("vocab_size") * f.hidden
    attention = _attention(f)
    moe_layers = _moe_layers(f)
    feed = _dense_feed_forward(f, moe_layers)
    if not moe_layers:
        return ParameterCount(attention, feed, table, table, _tied(f))
    experts = f.count("n_routed_experts", "num_local_experts", "num_experts")
    top = f.count("num_experts_per_tok", "top_k_experts", "experts_per_token")
    if top > experts:
        raise InputError(f"{f.source}: {top} experts per token of only {experts}")
    expert = _matrices(f) * f.hidden * f.count("moe_intermediate_size", "intermediate_size")
    shared = moe_layers * (_shared(f) + f.hidden * experts)
    return ParameterCount(
        attention, feed + shared, table, table, _tied(f), expert, experts, top, moe_layers
    )


def _tied(f: Fields) -> bool:
    """Gemma ties by default and may leave the key out."""
    return f.flag("tie_word_embeddings", f.model_type.startswith("gemma"))


def _matrices(f: Fields) -> int:
    return 2 if f.model_type in UNGATED else 3


def _moe_layers(f: Fields) -> int:
    if f.model_type == "nemotron_h":
        return str(f.values.get("hybrid_override_pattern", "")).count("E")
    if not any(f.has(k) for k in ("n_routed_experts", "num_local_experts", "num_experts")):
        return 0
    if isinstance(f.values.get("moe_layer_freq"), list):
        return sum(f.bits("moe_layer_freq", f.layers))
    if f.has("interleave_moe_layer_step"):
        return f.layers // f.count("interleave_moe_layer_step")
    dense = f.count("first_k_dense_replace", low=0, default=0)
    listed = f.values.get("mlp_only_layers") or []
    return max(0, f.layers - dense - (len(listed) if isinstance(listed, list) else 0))


def _dense_feed_forward(f: Fields, moe_layers: int) -> int:
    if f.model_type.startswith("gemma4"):  # a dense branch beside the experts in every layer
        return f.layers * 3 * f.hidden * f.count("intermediate_size")
    if f.model_type == "nemotron_h":
        layers = str(f.values["hybrid_override_pattern"]).count("-")
        return layers * 2 * f.hidden * f.count("intermediate_size") if layers else 0
    layers = f.layers - moe_layers
    if not layers:
        return 0
    width = f.count("intermediate_size_mlp", "intermediate_size", "n_inner", default=4 * f.hidden)
    return layers * _matrices(f) * f.hidden * width


def _shared(f: Fields) -> int:
    key = next((k for k in SHARED_KEYS if f.has(k)), None)
    if f.model_type.startswith("llama4"):
        return 3 * f.hidden * f.count("intermediate_size")
    if key is not None:
        return _matrices(f) * f.hidden * f.count(key, low=0)
    number_shared = f.count("n_shared_experts", low=0, default=0)
    return number_shared * 3 * f.hidden * f.count("moe_intermediate_size", "intermediate_size")


def _attention(f: Fields) -> int:
    """All mixing layers: attention of whichever kind, and recurrent layers of a hybrid."""
    latent = next((k for k in LATENT_EXPERT_KEYS if f.has(k)), None)
    if latent is not None or f.model_type in ("kimi_k3", "kimi_linear"):
        raise InputError(
            f"{f.source}: {f.model_type} with {latent or 'delta attention'} has no parameter"
            " formula here, and none is guessed; plan a model of a family that has one"
        )
    if f.has("kv_lora_rank"):
        return f.layers * _latent(f)
    if f.has("linear_num_key_heads"):
        return _delta_hybrid(f)
    if f.model_type == "nemotron_h":
        return _mamba_hybrid(f)
    if f.model_type.startswith("gemma4"):
        return _gemma4(f)
    if f.has("hybrid_layer_pattern"):
        return _mimo(f)
    return f.layers * _grouped(f.hidden, f.heads, f.kv_heads, f.head_dim, f.head_dim)


def _grouped(hidden: int, heads: int, kv_heads: int, key: int, value: int) -> int:
    return hidden * (heads * (key + value) + kv_heads * (key + value))


def _latent(f: Fields) -> int:
    nope, rope, value = (f.count(k) for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    rank, query = f.count("kv_lora_rank"), f.heads * (nope + rope)
    low = f.count("q_lora_rank", low=0, default=0)
    query_size = f.hidden * low + low * query if low else f.hidden * query
    size = query_size + f.hidden * (rank + rope) + rank * f.heads * (nope + value)
    size += f.heads * value * f.hidden
    if f.has("index_head_dim"):
        width, index_heads = f.count("index_head_dim"), f.count("index_n_heads")
        size += low * index_heads * width + f.hidden * (width + index_heads)
    return size


def _delta_hybrid(f: Fields) -> int:
    every = f.count("full_attention_interval", default=4)
    full = f.layers // every
    gate = 2 if f.flag("attn_output_gate", True) else 1
    full_size = f.hidden * f.head_dim * (f.heads * (1 + gate) + 2 * f.kv_heads)
    key = f.count("linear_num_key_heads") * f.count("linear_key_head_dim")
    value_heads = f.count("linear_num_value_heads")
    value = value_heads * f.count("linear_value_head_dim")
    linear = f.hidden * (2 * key + 3 * value + 2 * value_heads)
    return full * full_size + (f.layers - full) * linear


def _mamba_hybrid(f: Fields) -> int:
    pattern = str(f.values["hybrid_override_pattern"])
    heads = f.count("mamba_num_heads")
    inner = heads * f.count("mamba_head_dim")
    groups = 2 * f.count("n_groups") * f.count("ssm_state_size")
    mamba = f.hidden * (3 * inner + groups + heads)
    attention = _grouped(f.hidden, f.heads, f.kv_heads, f.head_dim, f.head_dim)
    return pattern.count("M") * mamba + pattern.count("*") * attention


def _gemma4(f: Fields) -> int:
    kinds = f.words("layer_types", ("full_attention", "sliding_attention"), f.layers)
    wide, heads = f.count("global_head_dim"), f.count("num_global_key_value_heads")
    keys = 1 if f.flag("attention_k_eq_v") else 2
    full = f.hidden * wide * (2 * f.heads + keys * heads)
    sliding = _grouped(f.hidden, f.heads, f.kv_heads, f.head_dim, f.head_dim)
    return kinds.count("full_attention") * full + kinds.count("sliding_attention") * sliding


def _mimo(f: Fields) -> int:
    sliding = sum(f.bits("hybrid_layer_pattern", f.layers))
    full = _grouped(f.hidden, f.heads, f.kv_heads, f.count("head_dim"), f.count("v_head_dim"))
    heads, kv_heads = f.count("swa_num_attention_heads"), f.count("swa_num_key_value_heads")
    own = _grouped(f.hidden, heads, kv_heads, f.count("swa_head_dim"), f.count("swa_v_head_dim"))
    return (f.layers - sliding) * full + sliding * own


def _whisper(f: Fields) -> ParameterCount:
    width, table = f.count("d_model"), f.count("vocab_size") * f.count("d_model")
    feed_d = f.count("decoder_ffn_dim", default=4 * width)
    feed_e = f.count("encoder_ffn_dim", default=4 * width)
    layers, encoder = f.count("decoder_layers"), f.count("encoder_layers")
    attention, feed = 8 * layers * width * width, 2 * width * layers * feed_d
    whole = encoder * (4 * width * width + 2 * width * feed_e)
    return ParameterCount(attention, feed, table, table, True, encoder=whole)
