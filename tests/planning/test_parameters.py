"""Parameter counts against the published totals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll.errors import InputError
from preroll.planning import models
from preroll.planning.shape import shape_of

# Totals of the safetensors headers or model cards, in 1e9; active per token where published.
PUBLISHED = [
    ("Llama-3.1-8B", 8.030, None),
    ("Llama-3.1-70B", 70.554, None),
    ("Llama-3.1-405B", 405.85, None),
    ("Qwen3-0.6B", 0.596, None),
    ("Qwen3-32B", 32.762, None),
    ("Qwen3-30B-A3B", 30.532, 3.3),
    ("Qwen3-235B-A22B", 235.09, 22.0),
    ("Mixtral-8x7B", 46.703, 12.9),
    ("DeepSeek-V3", 671.0, 37.0),
    ("Kimi-K2", 1026.0, 32.0),
    ("gpt-oss-120b", 116.8, 5.13),
    ("gpt-oss-20b", 20.9, 3.6),
    ("Gemma-3-1B", 1.0, None),
    ("Nemotron-3-Nano-30B-A3B", 31.6, 3.2),
    ("Llama-4-Scout", 107.8, 17.0),
    ("Qwen3.5-397B-A17B", 397.0, 17.0),
    ("GLM-5", 744.0, 40.0),
    ("MiMo-V2-Flash", 309.0, 15.0),
    ("Whisper-large-v3", 1.543, None),
    ("SmolLM2-135M", 0.1345, None),
    ("SmolLM2-1.7B", 1.711, None),
    ("TinyLlama-1.1B", 1.100, None),
    ("Llama-3.3-70B", 70.554, None),
    ("Llama-3.2-1B", 1.236, None),
    ("Llama-3.2-3B", 3.213, None),
    ("Llama-2-7B", 6.738, None),
    ("Llama-2-70B", 68.977, None),
    ("DeepSeek-R1", 671.0, 37.0),
    ("Qwen2.5-0.5B", 0.494, None),
    ("Qwen2.5-1.5B", 1.544, None),
    ("Qwen2.5-3B", 3.086, None),
    ("Qwen2.5-7B", 7.616, None),
    ("Qwen2.5-14B", 14.770, None),
    ("Qwen2.5-32B", 32.764, None),
    ("Qwen2.5-72B", 72.706, None),
    ("Qwen3-1.7B", 1.721, None),
    ("Qwen3-4B", 4.022, None),
    ("Qwen3-14B", 14.768, None),
    ("Mistral-7B", 7.248, None),
    ("Mistral-Small-24B", 23.572, None),
    ("Mistral-Large-123B", 122.61, None),
    ("Mixtral-8x22B", 140.63, 39.0),
    ("Gemma-2-9B", 9.242, None),
    ("Gemma-2-27B", 27.227, None),
    ("Gemma-3-12B", 11.77, None),
    ("Gemma-3-27B", 27.01, None),
    ("Phi-4", 14.66, None),
]


@pytest.mark.parametrize(("name", "total", "active"), PUBLISHED)
def test_total_and_active_parameters(name: str, total: float, active: float | None) -> None:
    found = models.find(name).parameters
    assert found.total / 1e9 == pytest.approx(total, rel=0.01)
    if active is not None:
        assert found.active / 1e9 == pytest.approx(active, rel=0.09)


def test_every_built_in_model_has_a_shape() -> None:
    for name in models.builtin():
        assert models.find(name).weight_bytes > 0


NAMES = [
    ("llama-3.3-70b", "Llama-3.3-70B"),
    ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3.3-70B"),
    ("Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
    ("google/gemma-3-27b-it", "Gemma-3-27B"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B"),
    ("Llama-2-7b-chat-hf", "Llama-2-7B"),
    ("QWEN3-32B", "Qwen3-32B"),
]


@pytest.mark.parametrize(("typed", "name"), NAMES)
def test_a_name_is_known_as_people_type_it(typed: str, name: str) -> None:
    assert models.find(typed).name == name


def test_the_engine_gets_a_repository_and_a_repository_is_kept() -> None:
    assert models.reference("llama-3.3-70b") == "meta-llama/Llama-3.3-70B-Instruct"
    kept = "meta-llama/Meta-Llama-3.1-8B-Instruct"
    assert models.reference(kept) == kept
    assert models.reference("./my-model") == "./my-model"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("llama3.3-70b", "Llama-3.3-70B"), ("qwen3-32", "Qwen3-32B"), ("DeepSeekV3", "DeepSeek-V3")],
)
def test_an_unknown_name_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"did you mean {meant}"):
        models.find(typed)


def test_a_name_like_no_other_gets_no_guess() -> None:
    with pytest.raises(InputError) as raised:
        models.find("zzz")
    assert "did you mean" not in str(raised.value)


def test_a_shared_architecture_may_have_its_own_context() -> None:
    assert models.find("Llama-3-70B").max_context == 8192
    assert models.find("Llama-3.1-70B").max_context == 131_072
    assert models.find("Qwen3-30B-A3B-2507").max_context == 262_144


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_a_larger_batch_reads_more_experts_but_never_more_than_all(a: float, b: float) -> None:
    p = models.find("gpt-oss-120b").parameters
    low, high = sorted((a, b))
    assert p.read_per_step(1) == pytest.approx(p.active)
    assert p.read_per_step(low) <= p.read_per_step(high) + 1
    assert p.read_per_step(high) <= p.dense + p.routed


def test_precision_comes_from_the_config_or_is_asked_for() -> None:
    assert models.find("gpt-oss-120b").precision == "mxfp4"
    assert models.find("gpt-oss-120b").weight_bytes == pytest.approx(65e9, rel=0.03)
    assert models.find("Llama-3.1-8B").precision == "bf16"
    assert models.find("Llama-3.1-8B", "fp8").weight_bytes == pytest.approx(8.55e9, rel=0.01)
    with pytest.raises(InputError, match="--dtype is 'fp3'"):
        models.find("Llama-3.1-8B", "fp3")


def test_a_quantization_of_unknown_width_asks_for_the_dtype() -> None:
    config = {
        **models.builtin()["Llama-3.1-8B"]["config"],
        "quantization_config": {"quant_method": "compressed-tensors"},
    }
    with pytest.raises(InputError, match="--dtype"):
        shape_of(config, "x", "config.json")


def test_latent_experts_are_refused() -> None:
    config = {**models.builtin()["Qwen3-30B-A3B"]["config"], "moe_latent_size": 1024}
    with pytest.raises(InputError, match="moe_latent_size"):
        shape_of(config, "x", "config.json")


def test_more_experts_per_token_than_experts_is_refused() -> None:
    config = {**models.builtin()["Mixtral-8x7B"]["config"], "num_experts_per_tok": 9}
    with pytest.raises(InputError, match="9 experts per token of only 8"):
        shape_of(config, "x", "config.json")
