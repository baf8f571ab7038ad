"""safetensors: 8 bytes of header length, a JSON header, then the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from preroll.state.inspect.base import (
    MAX_HEADER_BYTES,
    Contents,
    DamagedFileError,
    Tensor,
    truncated,
)

# Bits per value, from the format's description (https://github.com/huggingface/safetensors).
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


def looks_like(head: bytes) -> bool:
    """True for a plausible length followed by the opening of a JSON object."""
    return (
        len(head) > 8
        and int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES
        and head[8:].lstrip(b" ").startswith(b"{")
    )


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DamagedFileError(f"tensor '{key}' stands twice in the header; write it again")
        result[key] = value
    return result


def header(path: Path) -> tuple[int, dict[str, Any]]:
    """The header's end (byte offset of the data) and its entries."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise DamagedFileError(f"{path}: header of {length:,} bytes; at most 256 MiB is read")
        raw = file.read(length)
    if len(raw) < length:
        raise truncated(path, 8 + length, "the header")
    try:
        entries = json.loads(raw, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"{path}: the header is not JSON ({error}); fetch it again"
        ) from None
    except DamagedFileError as error:
        raise DamagedFileError(f"{path}: {error}") from None
    if not isinstance(entries, dict):
        raise DamagedFileError(f"{path}: the header is not a JSON object; fetch it again")
    return 8 + length, entries


def tensor(path: Path, name: str, entry: Any) -> tuple[Tensor, int]:
    """One entry checked, and the end of its data relative to the data's begin."""
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(size) for size in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (TypeError, KeyError, ValueError):
        raise DamagedFileError(
            f"{path}: tensor '{name}' lacks dtype, shape or data_offsets; fetch it again"
        ) from None
    if begin < 0 or end < begin or any(size < 0 for size in shape):
        raise DamagedFileError(f"{path}: tensor '{name}' has impossible offsets {begin}..{end}")
    result = Tensor(name, dtype, shape, end - begin, (str(path), begin))
    bits = BITS.get(dtype)
    if bits is not None and (result.num_parameters * bits + 7) // 8 != end - begin:
        raise DamagedFileError(
            f"{path}: tensor '{name}' is {dtype}{list(shape)} but stores {end - begin:,} bytes"
        )
    return result, end


def read(path: Path) -> Contents:
    """Reads the header only.

    Raises DamagedFileError for a truncated file, a wrong header, or sizes that disagree.
    """
    begin, entries = header(path)
    contents = Contents(path, "safetensors")
    metadata = entries.pop("__metadata__", None)
    if isinstance(metadata, dict):
        contents.metadata = {str(key): str(value) for key, value in metadata.items()}
    last = 0
    for name, entry in entries.items():
        parsed, end = tensor(path, name, entry)
        contents.tensors.append(parsed)
        last = max(last, end)
        if parsed.dtype not in BITS:
            contents.unknown.append(f"dtype {parsed.dtype} of '{name}': not in the format's list")
    size = path.stat().st_size
    if begin + last > size:
        raise truncated(path, begin + last, "the last tensor")
    if begin + last < size:
        contents.notes.append(f"{size - begin - last:,} bytes follow the last tensor")
    return contents
