"""KV cache bytes against published configurations, and configs that are wrong or hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preroll.errors import InputError
from preroll.planning import models
from preroll.planning.config_reader import Fields
from preroll.planning.families import layout_of
from preroll.planning.formulas import kv
from preroll.planning.shape import shape_of

VECTORS = json.loads(Path(__file__).with_name("kv_vectors.json").read_text())
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["model"])
def test_published_configuration(vector: dict[str, Any]) -> None:
    layout = layout_of(Fields(vector["config"]))
    assert kv.token_bytes(layout) == vector["kv_bytes_per_token"]
    assert kv.window_bytes(layout) == vector["window_bytes_per_token"]
    assert kv.fixed_bytes(layout) == vector["fixed_bytes_per_sequence"]
    windows = {c.window for c in layout.tokens if c.window is not None and c.layers}
    assert windows == ({vector["window_tokens"]} if vector["window_tokens"] else set())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["model"])
def test_built_in_models_agree_with_the_published_configuration(vector: dict[str, Any]) -> None:
    name = vector["model"].split(" ")[0]
    if name == "Kimi-K3":
        pytest.skip("no parameter formula: not built in")
    layout = models.find(name).layout
    assert kv.token_bytes(layout) == vector["kv_bytes_per_token"]
    assert kv.fixed_bytes(layout) == vector["fixed_bytes_per_sequence"]


def layout(**changes: Any) -> kv.KvLayout:
    return layout_of(Fields({**LLAMA, **changes}))


def test_a_missing_head_dim_is_hidden_over_heads_and_a_given_one_wins() -> None:
    assert kv.token_bytes(layout()) == 2 * 32 * 8 * 128 * 2
    assert kv.token_bytes(layout(head_dim=64)) == 2 * 32 * 8 * 64 * 2


def test_missing_kv_heads_means_one_per_attention_head() -> None:
    assert kv.token_bytes(layout(num_key_value_heads=None)) == 2 * 32 * 32 * 128 * 2


@pytest.mark.parametrize(
    ("tp", "times"), [(1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0), (16, 2.0), (32, 4.0)]
)
def test_tensor_parallelism_beyond_the_kv_heads_replicates_them(tp: int, times: float) -> None:
    assert kv.token_bytes(layout(), tp=tp) == times * kv.token_bytes(layout())


def test_heads_that_do_not_divide_are_padded() -> None:
    assert kv.copies(8, 3) == pytest.approx(9 / 8)


def test_a_latent_is_held_by_every_device() -> None:
    latent = models.find("DeepSeek-V3").layout
    assert kv.token_bytes(latent, tp=8) == 8 * 70272


@pytest.mark.parametrize(
    ("dtype", "share"), [("fp8", 0.5), ("fp32", 2.0), ("q8_0", 34 / 64), ("q4_0", 18 / 64)]
)
def test_quantised_caches(dtype: str, share: float) -> None:
    assert kv.token_bytes(layout(), dtype) == share * kv.token_bytes(layout())


def test_an_fp8_cache_leaves_index_keys_and_recurrent_state_alone() -> None:
    sparse = models.find("DeepSeek-V3.2").layout
    assert kv.token_bytes(sparse, "fp8") == 61 * (576 + 132)
    hybrid = models.find("Qwen3.5-27B").layout
    assert kv.fixed_bytes(hybrid, "fp8") == kv.fixed_bytes(hybrid, "bf16")


def test_a_window_bounds_what_a_long_sequence_holds() -> None:
    gemma = models.find("Gemma-3-1B").layout
    short, long = kv.sequence_bytes(gemma, 512), kv.sequence_bytes(gemma, 10_512)
    assert short == 512 * (4096 + 22528)
    assert long - short == 10_000 * 4096


def test_a_mistral_window_applies_unless_switched_off() -> None:
    assert kv.token_bytes(layout(sliding_window=4096)) == 0
    assert kv.window_bytes(layout(sliding_window=4096)) == 131072
    assert kv.token_bytes(layout(sliding_window=4096, use_sliding_window=False)) == 131072
    upper = layout(sliding_window=4096, use_sliding_window=True, max_window_layers=24)
    assert kv.token_bytes(upper) == 131072 * 24 / 32


def test_shared_kv_layers_hold_nothing_of_their_own() -> None:
    config = {**models.builtin()["gemma-4-26B-A4B"]["config"], "num_kv_shared_layers": 6}
    assert kv.token_bytes(layout_of(Fields(config))) == 20480 * 4 / 5


@pytest.mark.parametrize("family", ["deepseek_v4", "rwkv", "minimax_m3", "step3p7"])
def test_a_family_without_a_formula_is_refused_by_name(family: str) -> None:
    with pytest.raises(InputError, match=f"{family}.*none is guessed"):
        layout(model_type=family)


def test_a_known_family_with_an_unknown_cache_scheme_is_refused() -> None:
    with pytest.raises(InputError, match="compress_ratios"):
        layout(compress_ratios=[128, 4])


HOSTILE: list[tuple[str, Any]] = [
    ("num_hidden_layers", 0),
    ("num_hidden_layers", -1),
    ("num_hidden_layers", 1e30),
    ("num_hidden_layers", 10**400),
    ("num_hidden_layers", "80"),
    ("num_hidden_layers", None),
    ("num_hidden_layers", True),
    ("num_hidden_layers", 31.5),
    ("num_hidden_layers", float("nan")),
    ("num_hidden_layers", float("inf")),
    ("hidden_size", []),
    ("hidden_size", {"a": 1}),
    ("num_attention_heads", 0),
    ("num_attention_heads", 33),
    ("num_key_value_heads", -8),
    ("head_dim", 0),
    ("head_dim", 1e30),
    ("sliding_window", "wide"),
    ("use_sliding_window", 1),
    ("vocab_size", 0),
    ("intermediate_size", None),
    ("model_type", None),
    ("model_type", 7),
    ("model_type", ""),
]


@pytest.mark.parametrize(("key", "value"), HOSTILE, ids=lambda v: repr(v)[:20])
def test_a_wrong_fact_is_one_clear_error_that_names_the_key(key: str, value: Any) -> None:
    changes = {"sliding_window": 4096, key: value} if key == "use_sliding_window" else {key: value}
    if key == "intermediate_size":
        shape_of({**LLAMA, key: None}, "x", "x")  # 4 × hidden by convention
        return
    with pytest.raises(InputError) as raised:
        shape_of({**LLAMA, **changes}, "x", "config.json")
    named = {"num_attention_heads": "head_dim" if value == 33 else key}.get(key, key)
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("config", [None, [], "llama", 3, {}, {"text_config": 5}, {"a": {}}])
def test_something_else_than_a_config_is_an_input_error(config: Any) -> None:
    with pytest.raises(InputError):
        shape_of(config, "x", "config.json")


def test_a_nested_text_config_is_entered_and_named_in_errors() -> None:
    nested = {"model_type": "outer", "text_config": dict(LLAMA)}
    assert kv.token_bytes(layout_of(Fields(nested))) == 131072
    del nested["text_config"]["hidden_size"]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="text_config: hidden_size is missing"):
        layout_of(Fields(nested))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gpt-oss-120b", "layer_types", ["full_attention"]),
        ("gpt-oss-120b", "layer_types", ["odd_attention"] * 36),
        ("MiMo-V2-Flash", "hybrid_layer_pattern", [2] * 48),
        ("Nemotron-3-Nano-30B-A3B", "hybrid_override_pattern", "MX"),
        ("gemma-4-26B-A4B", "num_kv_shared_layers", 30),
    ],
)
def test_a_layer_pattern_that_does_not_fit_is_refused(name: str, key: str, value: Any) -> None:
    config = {**models.builtin()[name]["config"], key: value}
    with pytest.raises(InputError, match=key):
        layout_of(Fields(config))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(models.builtin())), st.data())
def test_any_changed_config_gives_a_shape_or_an_input_error(name: str, data: st.DataObject) -> None:
    config = dict(models.builtin()[name]["config"])
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        config[key] = data.draw(JSON)
    try:
        shape = shape_of(config, "fuzzed", "config.json")
    except InputError as error:
        assert str(error)
    else:
        assert shape.weight_bytes > 0
        assert 0 <= kv.sequence_bytes(shape.layout, 1000) < 1e18


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_json_gives_a_shape_or_an_input_error(config: Any) -> None:
    with pytest.raises(InputError):
        shape_of(config, "fuzzed", "config.json")


@given(st.integers(1, 64), st.integers(1, 64))
def test_no_device_holds_less_than_one_head_and_all_hold_at_least_one_copy(
    heads: int, tp: int
) -> None:
    copies = kv.copies(heads, tp)
    assert copies >= 1.0
    assert copies * heads / tp >= 1.0 - 1e-12


def test_a_model_that_does_not_fit_is_refused_with_its_numbers() -> None:
    with pytest.raises(InputError, match=r"does not fit.*141\.0 GB weights"):
        kv.pool_bytes(80e9, 141e9, 4e9)


def test_pools_that_share_nothing_hold_whole_sessions_each() -> None:
    latent = models.find("DeepSeek-V3").layout
    assert kv.capacity_sessions(latent, 8 * 1.9 * 70272, 1) == 15
    assert kv.capacity_sessions(latent, 8 * 1.9 * 70272, 1, parts=8) == 8
