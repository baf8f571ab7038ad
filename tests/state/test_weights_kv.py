"""`preroll weights inspect` says what one token of context costs, where that can be known."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from preroll.cli import weights, weights_kv
from preroll.state.inspect import inspect_path

LLAMA_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


def safetensors(path: Path) -> Path:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    return path


def gguf(path: Path, facts: dict[str, int | str]) -> Path:
    """A GGUF file with these facts and one tensor."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(facts))
    for key, value in facts.items():
        out += text(key)
        is_text = isinstance(value, str)
        out += struct.pack("<I", 8) + text(str(value)) if is_text else struct.pack("<II", 4, value)
    out += text("w") + struct.pack("<IQIQ", 1, 2, 0, 0)
    path.write_bytes(out + bytes(-len(out) % 32) + bytes(8))
    return path


def facts_of(path: Path) -> dict[str, Any]:
    found = weights_kv.facts(inspect_path(path))
    assert found is not None
    return found


def test_the_config_beside_the_file_or_in_the_folder_gives_the_published_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = safetensors(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    for path in (file, tmp_path):
        assert facts_of(path)["bytes_per_token"] == {"bf16": 327_680, "fp8": 163_840}
    assert weights.main(["inspect", str(tmp_path)]) == 0
    assert "KV cache per token: 327,680 B in bf16" in capsys.readouterr().out
    assert weights.main(["inspect", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kv_cache"]["bytes_per_token"]["bf16"] == 327_680


def test_without_a_config_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = safetensors(tmp_path / "model.safetensors")
    assert weights_kv.facts(inspect_path(file)) is None
    assert weights.main(["inspect", str(file)]) == 0
    assert "its size is not known" in capsys.readouterr().out


def test_a_config_of_an_unknown_family_is_refused_not_guessed(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "never_heard_of"}')
    assert "never_heard_of" in facts_of(tmp_path)["unknown"]


def test_a_gguf_header_is_enough_for_plain_attention(tmp_path: Path) -> None:
    plain: dict[str, int | str] = {
        "general.architecture": "llama",
        "llama.block_count": 30,
        "llama.embedding_length": 576,
        "llama.attention.head_count": 9,
        "llama.attention.head_count_kv": 3,
    }
    found = facts_of(gguf(tmp_path / "a.gguf", plain))
    assert found["bytes_per_token"]["bf16"] == 2 * 30 * 3 * 64 * 2
    wide = {**plain, "llama.attention.key_length": 128, "llama.attention.value_length": 96}
    assert facts_of(gguf(tmp_path / "b.gguf", wide))["bytes_per_token"]["bf16"] == 30 * 3 * 224 * 2


@pytest.mark.parametrize("key", ["attention.kv_lora_rank", "attention.sliding_window", "ssm.inner"])
def test_a_gguf_with_another_kind_of_cache_is_refused(tmp_path: Path, key: str) -> None:
    header: dict[str, int | str] = {"general.architecture": "odd", f"odd.{key}": 512}
    assert "not a plain cache" in facts_of(gguf(tmp_path / "a.gguf", header))["unknown"]


def test_a_gguf_header_without_the_facts_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    found = facts_of(gguf(tmp_path / "a.gguf", {"general.architecture": "llama"}))
    assert "attention.head_count is None" in found["unknown"]
