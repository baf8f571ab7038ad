"""Reads a model's config.json strictly: every fact by name, in range, or one clear error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preroll.errors import InputError
from preroll.planning.formulas.check import number, whole

LIMITS = {
    "num_hidden_layers": 2000,
    "decoder_layers": 2000,
    "encoder_layers": 2000,
    "vocab_size": 10_000_000,
    "head_dim": 65_536,
}
WIDEST = 100_000_000
"""No published width, count or window is near this: more is a wrong or hostile file."""


class Fields:
    """The facts of one config.json; `text_config` (or `llm_config`) is entered when present.

    The getters raise InputError naming the key, its value and what is allowed.
    """

    def __init__(self, config: object, source: str = "config.json") -> None:
        outer = _mapping(config, source)
        self.source = source
        inner = next((k for k in ("text_config", "llm_config") if k in outer), None)
        self.values = outer
        if inner is not None and not outer.get("num_hidden_layers"):
            self.source = f"{source}: {inner}"
            self.values = {**_mapping(outer[inner], self.source)}
            self.values.setdefault("tie_word_embeddings", outer.get("tie_word_embeddings", False))
        self.outer = outer
        self.model_type = self._model_type()

    def _model_type(self) -> str:
        value = self.values.get("model_type", self.outer.get("model_type"))
        if not isinstance(value, str) or not value:
            raise InputError(
                f"{self.source}: model_type is {value!r}; a family name such as 'llama' is needed"
            )
        return value

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def count(self, *keys: str, low: int = 1, default: int | None = None) -> int:
        """The first of `keys` that is present, as an int; `default` when none is."""
        key = next((k for k in keys if self.has(k)), None)
        if key is None:
            if default is not None:
                return default
            raise InputError(f"{self.source}: {keys[0]} is missing; add it to the config")
        return whole(f"{self.source}: {key}", self.values[key], low, LIMITS.get(key, WIDEST))

    def fraction(self, key: str, default: float) -> float:
        if not self.has(key):
            return default
        return number(f"{self.source}: {key}", self.values[key], 0.0, 1e6)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{self.source}: {key} is {value!r}; true or false is needed")
        return value

    def words(self, key: str, allowed: tuple[str, ...], length: int) -> list[str]:
        """A list of `length` words out of `allowed` (layer_types and the like)."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) != length:
            got = f"{len(value)} entries" if isinstance(value, list) else repr(value)
            raise InputError(f"{self.source}: {key} is {got}; a list of {length} is needed")
        for word in value:
            if word not in allowed:
                raise InputError(f"{self.source}: {key} has {word!r}; known: {', '.join(allowed)}")
        return [str(word) for word in value]

    def bits(self, key: str, length: int) -> list[int]:
        """A list of `length` zeros and ones."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) != length:
            raise InputError(f"{self.source}: {key} must be a list of {length} zeros and ones")
        return [whole(f"{self.source}: {key}", bit, 0, 1) for bit in value]

    def table(self, key: str) -> Fields:
        """A nested table with this one's source in its errors."""
        inner = Fields.__new__(Fields)
        inner.values = inner.outer = _mapping(self.values.get(key), f"{self.source}: {key}")
        inner.source, inner.model_type = f"{self.source}: {key}", self.model_type
        return inner

    @property
    def layers(self) -> int:
        return self.count("num_hidden_layers", "n_layer", "num_layers")

    @property
    def hidden(self) -> int:
        return self.count("hidden_size", "n_embd", "d_model")

    @property
    def heads(self) -> int:
        return self.count("num_attention_heads", "n_head")

    @property
    def kv_heads(self) -> int:
        return self.count("num_key_value_heads", default=self.heads)

    @property
    def head_dim(self) -> int:
        """head_dim, or hidden/heads when absent; a width that does not divide is an error."""
        if self.has("head_dim"):
            return self.count("head_dim")
        if self.hidden % self.heads:
            raise InputError(
                f"{self.source}: head_dim is missing and hidden_size {self.hidden} does not divide"
                f" by num_attention_heads {self.heads}; add head_dim to the config"
            )
        return self.hidden // self.heads


def _mapping(value: object, source: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{source} is {type(value).__name__}; a JSON object is needed")
    return dict(value)
