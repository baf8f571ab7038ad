"""`python -m preroll.voice.quantize MODEL FOLDER`: a CTranslate2 model with its weights in int8.

A package carries half precision; made int8 anew at each start, that is most of a load. Here it is
done once, by the same rule: each row of a matrix by 127 / its largest magnitude (convolutions and
vectors stay as they are, in single precision).

The file: u32 version · name of the kind · u32 revision · variables · aliases (a count in front of
both); a variable is its name, u8 rank, u32 dimensions, u8 type, u32 bytes, and its bytes; a text
is u16 length with a zero behind it. Little endian. Source: `ctranslate2/specs/model_spec.py`.
"""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preroll.errors import InputError, PrerollError
from preroll.voice.recognizer import find_model

VERSIONS = (5, 6)
TYPES = ("<f4", "i1", "<i2", "<i4", "<f2")
"""By their number in the file; bfloat16, which follows, numpy does not know."""
FLOAT32, INT8, FLOAT16 = 0, 1, 4
NOT_NEEDED = "tokenizer.json"
USAGE = "usage: python -m preroll.voice.quantize MODEL FOLDER"


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    shape: tuple[int, ...]
    kind: int
    data: bytes


class Reader:
    """The parts of a file, one after the other. Raises InputError where it breaks off."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(form)))
        return int(value)

    def text(self) -> str:
        return self.take(self.number("H"))[:-1].decode()

    def take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise InputError(f"the model's file breaks off after {len(self._data)} bytes")
        return self._data[self._at - count : self._at]

    def variable(self) -> Variable:
        name = self.text()
        shape = tuple(self.number("I") for _ in range(self.number("B")))
        kind = self.number("B")
        return Variable(name, shape, kind, self.take(self.number("I")))

    def rest(self) -> bytes:
        return self._data[self._at :]


def quantized(data: bytes) -> bytes:
    """The same model in int8. Raises InputError for a file of another kind."""
    reader = Reader(data)
    version = reader.number("I")
    if version not in VERSIONS:
        raise InputError(f"the model's file has version {version}; allowed: {VERSIONS}")
    head = struct.pack("<I", version) + _text(reader.text())
    head += struct.pack("<I", reader.number("I"))
    variables = [reader.variable() for _ in range(reader.number("I"))]
    made = [one for variable in variables for one in _smaller(variable)]
    made.sort(key=lambda one: one.name)
    body = b"".join(_written(one) for one in made)
    return head + struct.pack("<I", len(made)) + body + reader.rest()


def _smaller(variable: Variable) -> Iterator[Variable]:
    if variable.kind not in (FLOAT32, FLOAT16):
        yield variable
        return
    values = np.frombuffer(variable.data, TYPES[variable.kind]).reshape(variable.shape)
    values = values.astype("<f4")
    name = variable.name
    if len(variable.shape) != 2 or not name.endswith("weight") or "conv" in name:
        yield Variable(name, variable.shape, FLOAT32, values.tobytes())
        return
    largest = np.abs(values).max(axis=1)
    scale = (127.0 / np.where(largest == 0.0, 127.0, largest)).astype("<f4")
    rows = np.rint(values * scale[:, None]).astype("i1")
    yield Variable(name, variable.shape, INT8, rows.tobytes())
    yield Variable(f"{name}_scale", scale.shape, FLOAT32, scale.tobytes())


def _written(variable: Variable) -> bytes:
    shape = struct.pack(f"<B{len(variable.shape)}I", len(variable.shape), *variable.shape)
    size = struct.pack("<BI", variable.kind, len(variable.data))
    return _text(variable.name) + shape + size + variable.data


def _text(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        source, target = find_model(arguments[0]), Path(arguments[1])
        data = quantized((source / "model.bin").read_bytes())
    except PrerollError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_file() and path.name not in ("model.bin", NOT_NEEDED):
            shutil.copy(path, target)
    (target / "model.bin").write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
