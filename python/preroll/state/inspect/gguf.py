"""GGUF: a typed key-value header, tensor descriptions, then aligned data.

Source of the layout: the GGUF specification in ggml (docs/gguf.md); block sizes from ggml-common.h.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from preroll.state.inspect.base import (
    MAX_HEADER_BYTES,
    Contents,
    DamagedFileError,
    Tensor,
    truncated,
)

MAGIC = b"GGUF"
# type id -> (name, values per block, bytes per block)
BLOCKS = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
STRING, ARRAY = 8, 9
MAX_DEPTH = 4


class Cursor:
    """Reads little-endian values and names the file when it ends too early or grows too large."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.size = path.stat().st_size

    def take(self, count: int) -> bytes:
        position = self.file.tell()
        if count > MAX_HEADER_BYTES or position + count > self.size:
            raise truncated(self.path, position + count, "the header")
        return self.file.read(count)

    def scalar(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(code, self.take(struct.calcsize(code)))[0]
        return value

    def count(self, code: str = "<Q") -> int:
        return int(self.scalar(code))

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> str | int | float:
        """A metadata value; of an array only its length is kept, as '[n]'."""
        if kind in SCALARS:
            return self.scalar(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY or depth > MAX_DEPTH:
            raise DamagedFileError(f"{self.path}: metadata of unknown type {kind}; fetch it again")
        inner, length = self.count("<I"), self.count()
        if inner in SCALARS:
            self.take(struct.calcsize(SCALARS[inner]) * length)
        else:
            for _ in range(length):
                self.value(inner, depth + 1)
        return f"[{length}]"


def tensor(cursor: Cursor, contents: Contents) -> tuple[Tensor, int]:
    name, dimensions = cursor.text(), cursor.count("<I")
    if dimensions > 8:
        raise DamagedFileError(f"{cursor.path}: tensor '{name}' with {dimensions} dimensions")
    shape = tuple(cursor.count() for _ in range(dimensions))
    kind, offset = cursor.count("<I"), cursor.count()
    label, per_block, block_bytes = BLOCKS.get(kind, (f"type {kind}", 0, 0))
    plain = Tensor(name, label, shape, 0)
    if not per_block:
        contents.unknown.append(f"bytes of '{name}': ggml type {kind} is newer than this reader")
        return plain, offset
    num_bytes = -(-plain.num_parameters // per_block) * block_bytes
    return Tensor(name, label, shape, num_bytes, (str(cursor.path), offset)), offset + num_bytes


def read(path: Path) -> Contents:
    """Reads header and tensor descriptions; DamagedFileError when they do not fit the file."""
    contents = Contents(path, "gguf")
    with path.open("rb") as file:
        cursor = Cursor(path, file)
        cursor.take(4)
        version = cursor.count("<I")
        if version not in (2, 3):
            raise DamagedFileError(f"{path}: GGUF version {version}; versions 2 and 3 are read")
        num_tensors, num_values = cursor.count(), cursor.count()
        for _ in range(num_values):
            key = cursor.text()
            contents.metadata[key] = cursor.value(cursor.count("<I"))
        last = 0
        for _ in range(num_tensors):
            parsed, end = tensor(cursor, contents)
            contents.tensors.append(parsed)
            last = max(last, end)
        alignment = max(1, int(contents.metadata.get("general.alignment", 32)))
        begin = -(-file.tell() // alignment) * alignment
    if begin + last > path.stat().st_size:
        raise truncated(path, begin + last, "the last tensor")
    return contents
