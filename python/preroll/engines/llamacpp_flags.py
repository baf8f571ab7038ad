"""Flags of llama.cpp's server as its documentation spells them, and where each one goes.

Used by the check of an app file and by the worker; imports nothing of ours and nothing heavy,
because the worker's start is measured in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

# names -> (attribute path in CommonParams, kind); kinds: int, float, str, onoff, the name of
# an enum, or a constant in the form "=value" for flags that take no argument.
_TABLE: tuple[tuple[str, str, str], ...] = (
    ("-c --ctx-size", "n_ctx", "int"),
    ("-np --parallel", "n_parallel", "int"),
    ("-n --predict --n-predict", "n_predict", "int"),
    ("-b --batch-size", "n_batch", "int"),
    ("-ub --ubatch-size", "n_ubatch", "int"),
    ("--keep", "n_keep", "int"),
    ("-t --threads", "cpuparams.n_threads", "int"),
    ("-tb --threads-batch", "cpuparams_batch.n_threads", "int"),
    ("--threads-http", "n_threads_http", "int"),
    ("-ngl --gpu-layers --n-gpu-layers", "n_gpu_layers", "int"),
    ("-mg --main-gpu", "main_gpu", "int"),
    ("-sm --split-mode", "split_mode", "llama_split_mode"),
    ("-ctk --cache-type-k", "cache_type_k", "ggml_type"),
    ("-ctv --cache-type-v", "cache_type_v", "ggml_type"),
    ("-fa --flash-attn", "flash_attn_type", "llama_flash_attn_type"),
    ("-kvu --kv-unified", "kv_unified", "=1"),
    ("-no-kvu --no-kv-unified", "kv_unified", "=0"),
    ("--swa-full", "swa_full", "=1"),
    ("--cache-prompt", "cache_prompt", "=1"),
    ("--no-cache-prompt", "cache_prompt", "=0"),
    ("--cache-reuse", "n_cache_reuse", "int"),
    ("-cram --cache-ram", "cache_ram_mib", "int"),
    ("-sps --slot-prompt-similarity", "slot_prompt_similarity", "float"),
    ("--context-shift", "ctx_shift", "=1"),
    ("--no-context-shift", "ctx_shift", "=0"),
    ("--rope-freq-base", "rope_freq_base", "float"),
    ("--rope-freq-scale", "rope_freq_scale", "float"),
    ("--chat-template", "chat_template", "str"),
    ("--jinja", "use_jinja", "=1"),
    ("--no-jinja", "use_jinja", "=0"),
    ("--warmup", "warmup", "=1"),
    ("--no-warmup", "warmup", "=0"),
    ("--check-tensors", "check_tensors", "=1"),
    ("--slots", "endpoint_slots", "=1"),
    ("--no-slots", "endpoint_slots", "=0"),
    ("--props", "endpoint_props", "=1"),
    ("--embedding --embeddings", "embedding", "=1"),
    ("--pooling", "pooling_type", "llama_pooling_type"),
    ("--reasoning-format", "reasoning_format", "common_reasoning_format"),
    ("-mm --mmproj", "mmproj.path", "str"),
    ("-lv --verbosity", "verbosity", "int"),
    ("-s --seed", "sampling.seed", "int"),
    ("--temp", "sampling.temp", "float"),
    ("--top-k", "sampling.top_k", "int"),
    ("--top-p", "sampling.top_p", "float"),
    ("--min-p", "sampling.min_p", "float"),
    ("--offline", "offline", "=1"),
    ("-fit --fit", "fit_params", "onoff"),
)

FLAGS: dict[str, tuple[str, str]] = {
    name: (path, kind) for names, path, kind in _TABLE for name in names.split()
}

# What people write for the members of the library's enums, where the names differ.
_WORDS = {
    ("llama_flash_attn_type", "on"): "ENABLED",
    ("llama_flash_attn_type", "off"): "DISABLED",
    ("common_reasoning_format", "deepseek-legacy"): "DEEPSEEK_LEGACY",
}

Setting = tuple[str, str, str]


class FlagError(ValueError):
    """A flag that cannot be used; `index` is its position among the arguments."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def parse_flags(args: Sequence[str]) -> list[Setting]:
    """Arguments -> (attribute path, kind, value as text). Raises FlagError."""
    settings: list[Setting] = []
    i = 0
    while i < len(args):
        name, equals, value = args[i].partition("=")
        if name not in FLAGS:
            raise FlagError(i, f"unknown flag {name!r} of llama.cpp; allowed: {' '.join(FLAGS)}")
        path, kind = FLAGS[name]
        if kind.startswith("="):
            if equals:
                raise FlagError(i, f"{name} takes no value; got {value!r}")
            settings.append((path, "bool", kind[1:]))
        else:
            if not equals:
                if i + 1 == len(args):
                    raise FlagError(i, f"{name} needs a value")
                i += 1
                value = args[i]
            _check_value(i, name, kind, value)
            settings.append((path, kind, value))
        i += 1
    return settings


def _check_value(index: int, name: str, kind: str, value: str) -> None:
    try:
        if kind == "int":
            int(value)
        elif kind == "float":
            float(value)
        elif kind == "onoff":
            _ONOFF[value]
    except (ValueError, KeyError):
        raise FlagError(index, f"{name} {value!r}: allowed: {_KINDS[kind]}") from None


_KINDS = {"int": "an integer", "float": "a number", "onoff": "on or off"}
_ONOFF = {"on": True, "off": False}


def apply(module: object, params: object, settings: Sequence[Setting]) -> None:
    """Sets each value on xllamacpp's CommonParams. Raises FlagError for a word not in an enum."""
    for path, kind, value in settings:
        *parents, attribute = path.split(".")
        owner = params
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, attribute, _converted(module, kind, value))


def _converted(module: object, kind: str, value: str) -> object:
    plain = {"int": int, "float": float, "str": str}
    if kind in plain:
        return plain[kind](value)
    if kind == "bool":
        return value == "1"
    if kind == "onoff":
        return _ONOFF[value]
    enum = getattr(module, kind)
    members = {m.name: m for m in enum}
    word = _WORDS.get((kind, value), value).replace("-", "_").upper()
    head = _shared_head(list(members))
    for name, member in members.items():
        if word in (name, name.removeprefix(f"{head}_")):
            return member
    raise FlagError(0, f"{value!r} is not one of {', '.join(sorted(members))}")


def _shared_head(names: Sequence[str]) -> str:
    """What the members' names share: `GGML_TYPE` of GGML_TYPE_F16 and GGML_TYPE_Q8_0."""
    listed = [name.split("_") for name in names]
    shared = 0
    while all(len(p) > shared and p[shared] == listed[0][shared] for p in listed):
        shared += 1
    return "_".join(listed[0][:shared])
