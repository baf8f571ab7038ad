"""Which engine a command line starts, for reading its log lines."""

from __future__ import annotations

from collections.abc import Sequence

from preroll.engines.base import ENGINES, Mark, get_engine
from preroll.errors import InputError

HINTS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm-serve": "trtllm",
    "llama": "llama.cpp",
    "tritonserver": "triton",
}


def engine_marks(words: Sequence[str], name: str | None = None) -> tuple[Mark, ...]:
    """The marks of engine `name`, or of the one that `words` speak of; () when none is known.

    Raises InputError for a name that is not an engine's.
    """
    from preroll.engines.triton import MARKS

    if name is not None and name != "triton" and name not in ENGINES:
        raise InputError(f"--engine {name}: allowed: {', '.join((*ENGINES, 'triton'))}")
    text = " ".join(words)
    known = name or next((engine for hint, engine in HINTS.items() if hint in text), None)
    if known == "triton":
        return MARKS
    return get_engine(known).marks if known else ()
