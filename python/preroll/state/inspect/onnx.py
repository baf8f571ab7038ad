"""ONNX: the initialisers of a protobuf ModelProto, walked over a memory map without copying data.

Field numbers from onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from preroll.state.inspect.base import Contents, DamagedFileError, Tensor, truncated

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MODEL_GRAPH, GRAPH_INITIALIZER = 7, 5
DIMS, DATA_TYPE, NAME, RAW_DATA, EXTERNAL, LOCATION = 1, 2, 8, 9, 13, 14
TYPED_DATA = {4, 5, 6, 7, 10, 11}  # float, int32, string, int64, double, uint64
# data_type -> (name, bits)
TYPES = {
    1: ("FLOAT", 32), 2: ("UINT8", 8), 3: ("INT8", 8), 4: ("UINT16", 16), 5: ("INT16", 16),
    6: ("INT32", 32), 7: ("INT64", 64), 9: ("BOOL", 8), 10: ("FLOAT16", 16), 11: ("DOUBLE", 64),
    12: ("UINT32", 32), 13: ("UINT64", 64), 16: ("BFLOAT16", 16), 17: ("FLOAT8E4M3FN", 8),
    18: ("FLOAT8E4M3FNUZ", 8), 19: ("FLOAT8E5M2", 8), 20: ("FLOAT8E5M2FNUZ", 8),
    21: ("UINT4", 4), 22: ("INT4", 4), 23: ("FLOAT4E2M1", 4), 24: ("FLOAT8E8M0", 8),
}  # fmt: skip

Field = tuple[int, int, int, int]  # field number, wire type, begin, end (value for VARINT in begin)


class Message:
    """A span of the file read as protobuf fields; every length is checked against the span."""

    def __init__(self, path: Path, data: mmap.mmap, begin: int, end: int) -> None:
        self.path, self.data, self.begin, self.end = path, data, begin, end

    def varint(self, position: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if position >= self.end:
                raise truncated(self.path, position + 1, "a number")
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value, position
        raise DamagedFileError(f"{self.path}: byte {position:,}: not a protobuf number")

    def fields(self) -> Iterator[Field]:
        position = self.begin
        while position < self.end:
            key, position = self.varint(position)
            number, wire = key >> 3, key & 7
            if wire == VARINT:
                value, position = self.varint(position)
                yield number, wire, value, position
                continue
            if wire == BYTES:
                length, position = self.varint(position)
            elif wire in (FIXED64, FIXED32):
                length = 8 if wire == FIXED64 else 4
            else:
                raise DamagedFileError(
                    f"{self.path}: byte {position:,}: not ONNX (wire type {wire})"
                )
            if position + length > self.end:
                raise truncated(self.path, position + length, f"field {number}")
            yield number, wire, position, position + length
            position += length

    def inner(self, begin: int, end: int) -> Message:
        return Message(self.path, self.data, begin, end)

    def text(self, begin: int, end: int) -> str:
        return self.data[begin:end].decode("utf-8", errors="replace")


def dimensions(message: Message, wire: int, begin: int, end: int) -> list[int]:
    """`dims` comes packed or one number at a time."""
    if wire == VARINT:
        return [begin]
    result, position = [], begin
    inner = message.inner(begin, end)
    while position < end:
        size, position = inner.varint(position)
        result.append(size)
    return result


def external_length(message: Message, begin: int, end: int) -> dict[str, str]:
    pair = {"1": "", "2": ""}
    for number, wire, low, high in message.inner(begin, end).fields():
        if wire == BYTES and number in (1, 2):
            pair[str(number)] = message.text(low, high)
    return {pair["1"]: pair["2"]}


def tensor(message: Message) -> tuple[Tensor, dict[str, str]]:
    """One TensorProto, and its external_data entries (location, offset, length) if any."""
    shape: list[int] = []
    name, kind, stored = "", 0, 0
    external: dict[str, str] = {}
    for number, wire, begin, end in message.fields():
        if number == DIMS:
            shape += dimensions(message, wire, begin, end)
        elif number == DATA_TYPE and wire == VARINT:
            kind = begin
        elif number == NAME and wire == BYTES:
            name = message.text(begin, end)
        elif (number == RAW_DATA or number in TYPED_DATA) and wire == BYTES:
            stored += end - begin
        elif number == EXTERNAL and wire == BYTES:
            external |= external_length(message, begin, end)
    label, bits = TYPES.get(kind, (f"type {kind}", 0))
    result = Tensor(name, label, tuple(shape), stored)
    if external or not stored:
        num_bytes = (result.num_parameters * bits + 7) // 8
        result = Tensor(name, label, tuple(shape), num_bytes)
    return result, external


def check_external(path: Path, contents: Contents, found: Tensor, external: dict[str, str]) -> None:
    """External data lives beside the model; a path that leaves the folder is not followed."""
    location = external.get("location", "")
    target = (path.parent / location).resolve()
    if not target.is_relative_to(path.parent.resolve()):
        contents.notes.append(f"'{found.name}' points outside the folder: {location!r}")
        return
    if not target.is_file():
        contents.notes.append(f"'{found.name}' is stored in {location!r}, which is missing")
        return
    offset = external.get("offset", "0")
    end = (int(offset) if offset.isdigit() else 0) + found.num_bytes
    if end > target.stat().st_size:
        raise truncated(target, end, f"tensor '{found.name}'")


def read(path: Path) -> Contents:
    """Reads graph initialisers (weights inside Constant nodes or subgraphs are not counted)."""
    contents = Contents(path, "onnx")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        model = Message(path, data, 0, len(data))
        for number, wire, begin, end in model.fields():
            if number != MODEL_GRAPH or wire != BYTES:
                continue
            for field, inner_wire, low, high in model.inner(begin, end).fields():
                if field == GRAPH_INITIALIZER and inner_wire == BYTES:
                    found, external = tensor(model.inner(low, high))
                    if external:
                        check_external(path, contents, found, external)
                    contents.tensors.append(found)
    if not contents.tensors:
        contents.unknown.append(
            "no initialisers: weights may be Constant nodes, or this is no ONNX"
        )
    return contents
