"""A model's file made int8, and its tokens made text, on small files of our own."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from preroll.errors import InputError
from preroll.voice.quantize import FLOAT16, FLOAT32, INT8, Reader, Variable, main, quantized
from preroll.voice.vocabulary import Vocabulary

INT32 = 3


def text(value: str) -> bytes:
    data = value.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def variable(name: str, values: np.ndarray, kind: int) -> bytes:
    shape = struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
    return text(name) + shape + struct.pack("<BI", kind, values.nbytes) + values.tobytes()


ROWS = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [3.0, 3.0, -3.0]], "<f2")
PARTS = [
    variable("a/bias", np.array([1.5, -1.5], "<f2"), FLOAT16),
    variable("a/weight", ROWS, FLOAT16),
    variable("conv1/weight", np.ones((2, 2, 3), "<f2"), FLOAT16),
    variable("heads", np.array(6, "<i4"), INT32),
]
ALIASES = struct.pack("<I", 1) + text("b/weight") + text("a/weight")
HEAD = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<I", 3)
MODEL = HEAD + struct.pack("<I", len(PARTS)) + b"".join(PARTS) + ALIASES


def read(data: bytes) -> tuple[dict[str, Variable], bytes]:
    reader = Reader(data)
    assert (reader.number("I"), reader.text(), reader.number("I")) == (6, "WhisperSpec", 3)
    found = [reader.variable() for _ in range(reader.number("I"))]
    assert [v.name for v in found] == sorted(v.name for v in found)
    return {v.name: v for v in found}, reader.rest()


def test_matrices_become_int8_with_a_scale_for_each_row_and_the_rest_single_precision() -> None:
    found, rest = read(quantized(MODEL))
    assert rest == ALIASES
    weight, scale = found["a/weight"], found["a/weight_scale"]
    assert (weight.kind, weight.shape, scale.kind, scale.shape) == (INT8, (3, 3), FLOAT32, (3,))
    rows = np.frombuffer(weight.data, "i1").reshape(3, 3)
    scales = np.frombuffer(scale.data, "<f4")
    assert np.abs(rows).max(axis=1).tolist() == [127, 0, 127]
    assert np.allclose(rows / scales[:, None], ROWS, atol=3.0 / 254)
    assert found["conv1/weight"].kind == found["a/bias"].kind == FLOAT32
    assert np.frombuffer(found["a/bias"].data, "<f4").tolist() == [1.5, -1.5]
    assert found["heads"] == Variable("heads", (), INT32, struct.pack("<i", 6))


@pytest.mark.parametrize("cut", [3, 10, 40, len(MODEL) - len(ALIASES) - 1])
def test_a_file_that_breaks_off_is_told(cut: int) -> None:
    with pytest.raises(InputError, match="breaks off"):
        quantized(MODEL[:cut])


def test_a_file_of_another_version_is_told() -> None:
    with pytest.raises(InputError, match="version 99"):
        quantized(struct.pack("<I", 99) + MODEL[4:])


def test_the_command_copies_what_belongs_to_the_model(tmp_path: Path) -> None:
    source = tmp_path / "from"
    source.mkdir()
    (source / "model.bin").write_bytes(MODEL)
    for name in ("config.json", "vocabulary.txt", "tokenizer.json"):
        (source / name).write_text("{}")
    assert main([str(source), str(tmp_path / "to")]) == 0
    made = {path.name for path in (tmp_path / "to").iterdir()}
    assert made == {"model.bin", "config.json", "vocabulary.txt"}
    assert (tmp_path / "to/model.bin").read_bytes() == quantized(MODEL)
    assert main([str(tmp_path / "nowhere"), str(tmp_path / "to")]) == 1


@pytest.mark.parametrize("name", ["vocabulary.txt", "vocabulary.json"])
def test_tokens_are_bytes_and_text_may_need_several(tmp_path: Path, name: str) -> None:
    tokens = ["Hi", "Ġthere", "Ã", "©", "<|end|>", "ĠĊ"]
    as_json = json.dumps(tokens)
    (tmp_path / name).write_text(as_json if name.endswith("json") else "\n".join(tokens) + "\n")
    vocabulary = Vocabulary.of(tmp_path)
    assert vocabulary.text([0, 1]) == "Hi there"
    assert vocabulary.text([2, 3]) == "é"
    assert vocabulary.text([2]) == "\N{REPLACEMENT CHARACTER}"
    assert vocabulary.text([5]) == " \n"
    assert vocabulary.number("<|end|>") == 4
    assert [vocabulary.begins_word(i) for i in (0, 1)] == [False, True]
    with pytest.raises(InputError, match="no token 'x'"):
        vocabulary.number("x")


def test_a_folder_without_a_list_of_tokens_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no list of tokens"):
        Vocabulary.of(tmp_path)
