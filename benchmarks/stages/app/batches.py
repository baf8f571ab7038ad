"""The examples' models, each as it is and with one item after the other."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples"
sys.path[:0] = [str(EXAMPLES / "embed"), str(EXAMPLES / "token_codec")]

from embed import Embed  # noqa: E402

from preroll import batch, inflight  # noqa: E402
from stages import Tokens  # noqa: E402


class EmbedAlone(Embed):
    encode = batch(max_size=1, max_wait=0)(Embed.encode.function)


class TokensAlone(Tokens):
    step = inflight(max_size=1)(Tokens.step.function)


__all__ = ["Embed", "EmbedAlone", "Tokens", "TokensAlone"]
