"""KV cache bytes per token of inspected weights: from the config beside them, or a GGUF's header.

The formulas are planning's; `state` knows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preroll.errors import InputError
from preroll.planning import models
from preroll.planning.formulas import kv
from preroll.state.inspect.report import Report

DTYPES = ("bf16", "fp8")
# Keys of a GGUF header that mean another cache than keys and values of every layer.
OTHER_CACHES = ("kv_lora_rank", "sliding_window", "ssm.", "full_attention_interval", "shared_kv")


def facts(report: Report) -> dict[str, Any] | None:
    """Per KV dtype the bytes that one more token takes, with the source of the facts; None where
    nothing is beside the weights; `unknown` says why a config gives no number."""
    config = (report.path if report.path.is_dir() else report.path.parent) / "config.json"
    try:
        if config.is_file():
            return _numbers(models.find(str(config)).layout, "config.json")
        header = next((c.metadata for c in report.files if c.format == "gguf"), None)
        return None if header is None else _numbers(_of_gguf(header), "the GGUF header")
    except InputError as error:
        return {"source": config.name if config.is_file() else "header", "unknown": str(error)}


def _numbers(layout: kv.KvLayout, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "bytes_per_token": {dtype: kv.token_bytes(layout, dtype) for dtype in DTYPES},
        "windowed_bytes_per_token": {dtype: kv.window_bytes(layout, dtype) for dtype in DTYPES},
        "bytes_per_sequence": {dtype: kv.fixed_bytes(layout, dtype) for dtype in DTYPES},
    }


def _of_gguf(header: Mapping[str, Any]) -> kv.KvLayout:
    """Keys and values of every layer; any other kind of cache is refused, not guessed."""
    family = str(header.get("general.architecture", ""))
    own = {k.removeprefix(f"{family}."): v for k, v in header.items() if k.startswith(f"{family}.")}
    strange = next((key for key in own for mark in OTHER_CACHES if mark in key), None)
    if strange is not None:
        raise InputError(
            f"{family}.{strange}: not a plain cache; put the model's config.json beside the file"
        )
    heads = _count(own, family, "attention.head_count")
    kv_heads = _count(own, family, "attention.head_count_kv", heads)
    width = _count(own, family, "embedding_length") // heads
    key = _count(own, family, "attention.key_length", width)
    value = _count(own, family, "attention.value_length", width)
    layers = _count(own, family, "block_count")
    return kv.KvLayout((kv.TokenCache(layers, kv_heads, key + value),))


def _count(own: Mapping[str, Any], family: str, key: str, default: int | None = None) -> int:
    value = own.get(key, default)
    if type(value) is not int or not 0 < value < 1_000_000:
        raise InputError(f"{family}.{key} is {value!r}; a count is needed: this header has none")
    return value


def lines(found: Mapping[str, Any] | None, folder: Path) -> list[str]:
    """What is said of the cache below the table of dtypes."""
    if found is None:
        return [f"KV cache: no config.json in {folder}, so its size is not known"]
    if "unknown" in found:
        return [f"KV cache: not known: {found['unknown']}"]
    per_token = found["bytes_per_token"]
    said = ", ".join(f"{per_token[dtype]:,.0f} B in {dtype}" for dtype in DTYPES)
    result = [f"KV cache per token: {said} (from {found['source']})"]
    for key, name in (
        ("windowed_bytes_per_token", "and within the window"),
        ("bytes_per_sequence", "and per sequence, whatever its length"),
    ):
        if found[key]["bf16"]:
            result.append(f"  {name}: {found[key]['bf16']:,.0f} B in bf16")
    return result
