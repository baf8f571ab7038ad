"""all-MiniLM-L6-v2 (a BERT of 6 layers, 384 wide) in numpy: forward pass, mean pooling, unit norm.

Architecture: BERT, arXiv:1810.04805; pooling and normalisation: sentence-transformers' model card.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

NUM_HEADS = 12
EPSILON = np.float32(1e-12)


class MiniLM:
    """Weights of one safetensors file, all float32."""

    def __init__(self, path: Path) -> None:
        self.weights = read_safetensors(path)
        names = {int(name.split(".")[2]) for name in self.weights if ".layer." in name}
        self.layers = [f"encoder.layer.{i}." for i in sorted(names)]

    def embed(self, batch: list[list[int]]) -> Array:
        """One unit vector of 384 for each list of token ids. Shape (batch, 384)."""
        lengths = np.array([len(tokens) for tokens in batch])
        ids = np.zeros((len(batch), lengths.max()), dtype=np.int64)
        for row, tokens in zip(ids, batch, strict=True):
            row[: len(tokens)] = tokens
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        hidden = self.hidden(ids, mask)
        pooled = (hidden * mask[:, :, None]).sum(axis=1) / lengths[:, None].astype(np.float32)
        unit: Array = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return unit

    def hidden(self, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> Array:
        """Hidden states of the last layer. Shape (batch, tokens, 384)."""
        table = self.weights
        x = table["embeddings.word_embeddings.weight"][ids]
        x = x + table["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = x + table["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(x, "embeddings.LayerNorm")
        # Padding is not attended to: its scores are as good as minus infinity.
        bias = np.where(mask, np.float32(0), np.float32(-1e9))[:, None, None, :]
        for layer in self.layers:
            attended = self.dense(self.attention(x, bias, layer), layer + "attention.output.dense")
            x = self.norm(x + attended, layer + "attention.output.LayerNorm")
            wide = gelu(self.dense(x, layer + "intermediate.dense"))
            x = self.norm(x + self.dense(wide, layer + "output.dense"), layer + "output.LayerNorm")
        return x

    def attention(self, x: Array, bias: Array, layer: str) -> Array:
        batch, tokens, width = x.shape

        def heads(name: str) -> Array:
            split = self.dense(x, f"{layer}attention.self.{name}")
            return split.reshape(batch, tokens, NUM_HEADS, -1).transpose(0, 2, 1, 3)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // NUM_HEADS)) + bias
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed: Array = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        return mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, width)

    def dense(self, x: Array, name: str) -> Array:
        weight, bias = self.weights[name + ".weight"], self.weights[name + ".bias"]
        # One product for all tokens: numpy would make one per text of a three-dimensional array.
        product: Array = x.reshape(-1, x.shape[-1]) @ weight.T + bias
        return product.reshape(*x.shape[:-1], -1)

    def norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + EPSILON)
        weight, bias = self.weights[name + ".weight"], self.weights[name + ".bias"]
        normed: Array = centred / scale * weight + bias
        return normed


def gelu(x: Array) -> Array:
    """x times the normal distribution's function, by erf to 1.5e-7 (Abramowitz, Stegun 7.1.26)."""
    z = np.abs(x) * np.float32(np.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = np.float32(0)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    erf = np.sign(x) * (1 - series * np.exp(-z * z))
    product: Array = 0.5 * x * (1 + erf)
    return product


def read_safetensors(path: Path) -> dict[str, Array]:
    """Tensors of a safetensors file: 8 bytes of header length, a JSON header, the data."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:end])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, stop = entry["data_offsets"]
            flat = np.frombuffer(data[end + begin : end + stop], dtype="<f4")
            tensors[name] = flat.reshape(entry["shape"])
    return tensors
