"""CTranslate2's model.bin: a sequence of named variables (ctranslate2/specs/model_spec.py)."""

from __future__ import annotations

import struct
from pathlib import Path

from preroll.state.inspect.base import Contents, DamagedFileError, Tensor, truncated
from preroll.state.inspect.gguf import Cursor

TYPES = {
    0: ("float32", 4), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("float16", 2),
    5: ("bfloat16", 2),
}  # fmt: skip
OLDEST, NEWEST = 4, 6
MAX_VARIABLES = 1_000_000


def looks_like(head: bytes) -> bool:
    """True for a known version followed by a plausible, NUL-terminated specification name."""
    if len(head) < 8:
        return False
    version, length = struct.unpack_from("<IH", head)
    name = head[6 : 6 + length]
    return OLDEST <= version <= NEWEST and 4 < length < 64 and name.endswith(b"Spec\0")


def text(cursor: Cursor) -> str:
    return cursor.take(cursor.count("<H")).rstrip(b"\0").decode("utf-8", errors="replace")


def variable(cursor: Cursor, path: Path) -> Tensor:
    name = text(cursor)
    shape = tuple(cursor.count("<I") for _ in range(cursor.count("<B")))
    kind, num_bytes = cursor.count("<B"), cursor.count("<I")
    dtype, item = TYPES.get(kind, (f"type {kind}", 0))
    tensor = Tensor(name, dtype, shape, num_bytes, (str(path), cursor.file.tell()))
    if item and tensor.num_parameters * item != num_bytes:
        raise DamagedFileError(f"{path}: '{name}' is {dtype}{list(shape)} in {num_bytes:,} bytes")
    end = cursor.file.tell() + num_bytes
    if end > cursor.size:
        raise truncated(path, end, f"variable '{name}'")
    cursor.file.seek(end)
    return tensor


def read(path: Path) -> Contents:
    """Reads names, shapes and types; raises DamagedFileError when the file ends too early."""
    contents = Contents(path, "ctranslate2")
    with path.open("rb") as file:
        cursor = Cursor(path, file)
        contents.metadata["binary_version"] = cursor.count("<I")
        contents.metadata["spec"] = text(cursor)
        contents.metadata["revision"] = cursor.count("<I")
        count = cursor.count("<I")
        if count > MAX_VARIABLES:
            raise DamagedFileError(f"{path}: {count:,} variables; at most {MAX_VARIABLES:,}")
        contents.tensors = [variable(cursor, path) for _ in range(count)]
        by_name = {tensor.name: tensor for tensor in contents.tensors}
        for _ in range(cursor.count("<I")):
            alias, target = text(cursor), text(cursor)
            if target in by_name:
                source = by_name[target]
                contents.tensors.append(
                    Tensor(alias, source.dtype, source.shape, source.num_bytes, source.location)
                )
    return contents
