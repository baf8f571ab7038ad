"""What planning needs to know of a model: sizes, caches, parameters, precision."""

from __future__ import annotations

from dataclasses import dataclass

from preroll.errors import InputError
from preroll.planning.config_reader import Fields
from preroll.planning.families import layout_of
from preroll.planning.formulas.kv import KvLayout
from preroll.planning.parameters import ParameterCount, count

PRECISIONS = ("bf16", "fp8", "fp4", "mxfp4", "int4")
QUANT_METHODS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "mxfp4": "mxfp4",
    "modelopt_fp4": "fp4",
    "nvfp4": "fp4",
    "gptq": "int4",
    "awq": "int4",
    "compressed-tensors": "",
    "modelopt": "",
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """One model. `qk_dim`: width of a query–key product per head; `full_layers`: attention layers
    without a window; `file_bytes`: size of the weight files when they were seen, else None."""

    name: str
    source: str
    layers: int
    hidden: int
    heads: int
    qk_dim: int
    full_layers: int
    layout: KvLayout
    parameters: ParameterCount
    precision: str
    max_context: int
    file_bytes: int | None = None

    @property
    def is_latent(self) -> bool:
        return any(cache.heads == 0 and cache.layers for cache in self.layout.tokens)

    @property
    def is_hybrid(self) -> bool:
        return bool(self.layout.states)

    @property
    def widths(self) -> tuple[float, float]:
        """Bytes per weight of the dense part and of the experts.

        Four-bit models keep attention and shared parts wider: mxfp4 and int4 experts sit in a
        bf16 model, nvfp4 experts in an fp8 one. Block scales are included.
        """
        moe = self.parameters.experts > 0
        table = {
            "bf16": (2.0, 2.0),
            "fp8": (1.0, 1.0),
            "fp4": (1.0 if moe else 0.5625, 0.5625),
            "mxfp4": (2.0, 0.53125),
            "int4": (2.0 if moe else 0.53, 0.53),
        }
        return table[self.precision]

    @property
    def weight_bytes(self) -> float:
        """Bytes of one copy of the weights: the files' size if known, else parameters × width."""
        if self.file_bytes is not None:
            return float(self.file_bytes)
        dense, expert = self.widths
        p = self.parameters
        table = 0.0 if p.tied else p.embedding * 2.0
        return (p.dense + p.encoder) * dense + p.routed * expert + table

    def read_bytes(self, batch: float) -> tuple[float, float]:
        """Bytes of dense weights and of distinct experts that one decode step of `batch` reads."""
        dense, expert = self.widths
        p = self.parameters
        return p.dense * dense, (p.read_per_step(batch) - p.dense) * expert


def shape_of(
    config: object, name: str, source: str, precision: str | None = None, files: int | None = None
) -> ModelShape:
    """The shape of one config.json (already parsed). InputError on anything wrong or unknown."""
    f = Fields(config, source)
    layout = layout_of(f)
    speech = f.model_type == "whisper"
    heads = f.count("decoder_attention_heads") if speech else f.heads
    return ModelShape(
        name=name,
        source=source,
        layers=f.count("decoder_layers") if speech else f.layers,
        hidden=f.hidden,
        heads=heads,
        qk_dim=_qk_dim(f, heads),
        full_layers=sum(c.layers for c in layout.tokens if c.window is None),
        layout=layout,
        parameters=count(f),
        precision=precision_of(f, precision),
        max_context=f.count("max_position_embeddings", "n_positions", default=8192),
        file_bytes=files,
    )


def precision_of(f: Fields, asked: str | None) -> str:
    """The weight precision: what was asked, else the config's quantization, else bf16."""
    if asked is not None:
        if asked not in PRECISIONS:
            raise InputError(f"--dtype is {asked!r}; allowed: {', '.join(PRECISIONS)}")
        return asked
    quantization = f.outer.get("quantization_config")
    if not isinstance(quantization, dict):
        return "bf16"
    method = str(quantization.get("quant_method", ""))
    named = QUANT_METHODS.get(method) or QUANT_METHODS.get(str(quantization.get("quant_algo")))
    if named:
        return named
    raise InputError(
        f"{f.source}: quantization {method or quantization!r} does not say its width; give"
        f" --dtype ({', '.join(PRECISIONS)})"
    )


def _qk_dim(f: Fields, heads: int) -> int:
    if f.has("qk_nope_head_dim"):
        return f.count("qk_nope_head_dim") + f.count("qk_rope_head_dim")
    return max(1, f.hidden // heads) if f.model_type == "whisper" else f.head_dim
