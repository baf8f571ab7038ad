"""`preroll weights inspect`: real layouts, and each way in which a file is not what it says."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import types
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preroll.cli import weights
from preroll.errors import InputError
from preroll.state.inspect import inspect_path
from preroll.state.inspect.report import Report


def safetensors_bytes(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    """`tensors`: name -> (dtype, shape, bytes); data is laid out in order."""
    entries, offset = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + bytes(offset)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def inspect_bytes(tmp_path: Path, data: bytes, name: str = "model.safetensors") -> Report:
    return inspect_path(write(tmp_path / name, data))


def damage(report: Report) -> str:
    assert len(report.damaged) == 1, report
    return report.damaged[0]


MIXED = {"a": ("BF16", [2, 3], 12), "b": ("F32", [4], 16), "c": ("F4", [3], 2)}


def test_safetensors_counts_parameters_and_bytes_per_dtype(tmp_path: Path) -> None:
    report = inspect_bytes(tmp_path, safetensors_bytes(MIXED))
    sums = {s.dtype: (s.num_tensors, s.num_parameters, s.num_bytes) for s in report.by_dtype()}
    assert sums == {"BF16": (1, 6, 12), "F32": (1, 4, 16), "F4": (1, 3, 2)}
    assert not report.damaged


def test_the_name_of_a_file_does_not_decide_its_precision(tmp_path: Path) -> None:
    data = safetensors_bytes({"w": ("F32", [8], 32)})
    report = inspect_bytes(tmp_path, data, "model-fp16.gguf")
    assert report.files[0].format == "safetensors"
    assert report.by_dtype()[0].dtype == "F32"


@pytest.mark.parametrize("cut", [0, 4, 9, 40, -1])
def test_a_truncated_safetensors_says_how_many_bytes_are_missing(tmp_path: Path, cut: int) -> None:
    message = damage(inspect_bytes(tmp_path, safetensors_bytes(MIXED)[:cut]))
    assert "truncated" in message or "empty file" in message or "not a weights format" in message


def test_a_tensor_whose_bytes_disagree_with_its_shape_is_named(tmp_path: Path) -> None:
    message = damage(inspect_bytes(tmp_path, safetensors_bytes({"w": ("F16", [3], 8)})))
    assert "'w' is F16[3] but stores 8 bytes" in message


def test_a_key_that_stands_twice_in_a_header_is_an_error(tmp_path: Path) -> None:
    entry = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    header = f'{{"w":{entry},"w":{entry}}}'.encode()
    message = damage(inspect_bytes(tmp_path, struct.pack("<Q", len(header)) + header + b"x"))
    assert "'w' stands twice" in message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><title>Sign in</title>", "an HTML page"),
        (b"  <html><body>rate limited", "an HTML page"),
        (b"", "empty file"),
        (bytes(4096), "zero bytes"),
        (b"hello world, not weights", "not a weights format"),
        (struct.pack("<Q", 2**60) + b"{}", "not a weights format"),
    ],
)
def test_what_is_not_weights_is_named_as_what_it_is(
    tmp_path: Path, data: bytes, words: str
) -> None:
    assert words in damage(inspect_bytes(tmp_path, data))


def test_a_broken_link_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    assert "broken symbolic link" in damage(inspect_path(tmp_path))
    with pytest.raises(InputError, match="no such file"):
        inspect_path(tmp_path / "absent.gguf")


def test_a_folder_reports_missing_shards_and_tensors_that_stand_twice(tmp_path: Path) -> None:
    write(tmp_path / "m-1.safetensors", safetensors_bytes({"a": ("F16", [2], 4)}))
    write(
        tmp_path / "m-2.safetensors",
        safetensors_bytes({"a": ("F16", [2], 4), "b": ("U8", [1], 1)}),
    )
    index = {"weight_map": {"a": "m-1.safetensors", "c": "m-3.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    report = inspect_path(tmp_path)
    assert any("m-3.safetensors" in line and "missing" in line for line in report.damaged)
    assert any("1 tensors stand in two files (a" in note for note in report.notes)


# GGUF -----------------------------------------------------------------------------------------


def gguf_text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf_bytes(kind: int, shape: list[int], data: bytes) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    head += gguf_text("general.alignment") + struct.pack("<II", 4, 64)
    head += gguf_text("tokens") + struct.pack("<IIQ", 9, 8, 2) + gguf_text("x") + gguf_text("y")
    head += gguf_text("blk.0.w") + struct.pack("<I", len(shape))
    head += b"".join(struct.pack("<Q", size) for size in shape) + struct.pack("<IQ", kind, 0)
    return head + bytes(-len(head) % 64) + data


def test_gguf_counts_blocks_not_parameters_as_bytes(tmp_path: Path) -> None:
    report = inspect_bytes(tmp_path, gguf_bytes(8, [64, 2], bytes(4 * 34)), "m.gguf")
    (entry,) = report.by_dtype()
    assert (entry.dtype, entry.num_parameters, entry.num_bytes) == ("Q8_0", 128, 136)
    assert report.files[0].metadata["tokens"] == "[2]"


def test_gguf_that_ends_in_its_data_or_header_is_truncated(tmp_path: Path) -> None:
    whole = gguf_bytes(8, [64, 2], bytes(4 * 34))
    for cut in range(4, len(whole), 7):
        assert "truncated" in damage(inspect_bytes(tmp_path, whole[:cut], "m.gguf"))


def test_an_unknown_ggml_type_is_said_not_guessed(tmp_path: Path) -> None:
    report = inspect_bytes(tmp_path, gguf_bytes(77, [64], bytes(64)), "m.gguf")
    assert "ggml type 77" in report.files[0].unknown[0]


# ONNX -----------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def block(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def onnx_tensor(name: str, kind: int, shape: list[int], raw: bytes, packed: bool) -> bytes:
    packed_dims = block(1, b"".join(varint(size) for size in shape))
    dims = packed_dims if packed else b"".join(varint(8) + varint(size) for size in shape)
    return dims + varint(16) + varint(kind) + block(8, name.encode()) + block(9, raw)


@pytest.mark.parametrize("packed", [True, False])
def test_onnx_initialisers_are_counted_by_type(tmp_path: Path, packed: bool) -> None:
    graph = block(5, onnx_tensor("w", 10, [2, 300], bytes(1200), packed))
    graph += block(5, onnx_tensor("b", 1, [3], bytes(12), packed))
    data = varint(8) + varint(9) + block(7, graph)
    report = inspect_bytes(tmp_path, data, "m.onnx")
    assert {s.dtype: s.num_parameters for s in report.by_dtype()} == {"FLOAT16": 600, "FLOAT": 3}


def test_onnx_external_data_outside_the_folder_is_not_followed(tmp_path: Path) -> None:
    entry = block(13, block(1, b"location") + block(2, b"../../etc/passwd"))
    tensor = varint(8) + varint(4) + varint(16) + varint(1) + block(8, b"w") + entry
    report = inspect_bytes(tmp_path, block(7, block(5, tensor)), "m.onnx")
    assert any("points outside the folder" in note for note in report.notes)


# torch ----------------------------------------------------------------------------------------


@pytest.fixture
def torch_names(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Modules of torch's names, only so that the pickler writes those names."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    storage = type("HalfStorage", (), {"__module__": "torch"})

    def rebuild(*arguments: object) -> None:
        raise AssertionError("the reader ran a function of the checkpoint")

    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    torch.HalfStorage, utils._rebuild_tensor_v2 = storage, rebuild  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return torch


class Weight:
    """Pickles as torch pickles a tensor."""

    def __init__(self, key: str, shape: tuple[int, ...], offset: int = 0) -> None:
        self.key, self.shape, self.offset = key, shape, offset

    def __reduce__(self) -> tuple[object, ...]:
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        return rebuild, (Id(self.key), self.offset, self.shape, (1,), False, {})


class Id:
    def __init__(self, key: str) -> None:
        self.key = key


class Pickler(pickle.Pickler):
    def persistent_id(self, value: object) -> object:
        if isinstance(value, Id):
            return ("storage", sys.modules["torch"].HalfStorage, value.key, "cpu", 64)
        return None


def checkpoint(content: object, stored: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    Pickler(stream, 2).dump(content)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("m/data.pkl", stream.getvalue())
        for key, data in stored.items():
            file.writestr(f"m/data/{key}", data)
    return archive.getvalue()


def test_a_torch_checkpoint_is_read_without_running_its_pickle(
    tmp_path: Path, torch_names: types.ModuleType
) -> None:
    content = {"model": {"w": Weight("0", (4, 8)), "tied": Weight("0", (4, 8))}, "step": 7}
    report = inspect_bytes(tmp_path, checkpoint(content, {"0": bytes(128)}), "m.pt")
    (entry,) = report.by_dtype()
    assert (entry.dtype, entry.num_parameters, entry.num_bytes) == ("float16", 32, 64)
    assert "1 tied" in report.notes[0]


def test_a_hostile_pickle_is_named_and_does_nothing(tmp_path: Path) -> None:
    target = tmp_path / "owned"
    code = f"cposix\nsystem\n(Vtouch {target}\ntR.".encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("m/data.pkl", code)
    report = inspect_bytes(tmp_path, archive.getvalue(), "m.pt")
    assert any("posix.system" in note for note in report.notes)
    assert not target.exists()


def test_a_checkpoint_with_less_data_than_its_tensors_need_is_damaged(
    tmp_path: Path, torch_names: types.ModuleType
) -> None:
    data = checkpoint({"w": Weight("0", (4, 8))}, {"0": bytes(10)})
    assert "needs more bytes" in damage(inspect_bytes(tmp_path, data, "m.pt"))


# CTranslate2 ----------------------------------------------------------------------------------


def ct2_text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def ct2_bytes() -> bytes:
    head = struct.pack("<I", 6) + ct2_text("WhisperSpec") + struct.pack("<II", 3, 2)
    head += ct2_text("w") + struct.pack("<BIIBI", 2, 4, 8, 1, 32) + bytes(32)
    head += ct2_text("scale") + struct.pack("<BIBI", 1, 4, 0, 16) + bytes(16)
    return head + struct.pack("<I", 1) + ct2_text("alias") + ct2_text("w")


def test_ctranslate2_shows_int8_weights_beside_float_scales(tmp_path: Path) -> None:
    report = inspect_bytes(tmp_path, ct2_bytes(), "model.bin")
    assert {s.dtype: s.num_bytes for s in report.by_dtype()} == {"int8": 32, "float32": 16}
    assert report.files[0].metadata["spec"] == "WhisperSpec"
    assert "1 tied" in report.notes[0]


def test_every_truncation_of_ctranslate2_is_an_error_not_a_crash(tmp_path: Path) -> None:
    whole = ct2_bytes()
    for cut in range(1, len(whole)):
        assert inspect_bytes(tmp_path, whole[:cut], "model.bin").damaged


# all ------------------------------------------------------------------------------------------


def test_a_tensorrt_plan_says_what_cannot_be_known(tmp_path: Path) -> None:
    report = inspect_bytes(tmp_path, b"ftrt" + bytes(100), "engine.plan")
    assert "EngineInspector" in report.files[0].unknown[0]


SEEDS = [safetensors_bytes(MIXED), gguf_bytes(8, [64, 2], bytes(136)), ct2_bytes()]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=8),
    st.integers(0, 500),
)
def test_no_damaged_file_is_a_traceback(
    tmp_path: Path, seed: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(seed)
    for position, value in edits:
        data[position % len(data)] = value
    inspect_bytes(tmp_path, bytes(data[: max(0, len(data) - cut)]), "model.onnx")


def test_the_command_exits_2_on_damage_and_prints_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(tmp_path / "a.safetensors", safetensors_bytes(MIXED))
    assert weights.main(["inspect", str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dtypes"][0]["dtype"] == "F32"
    bad = write(tmp_path / "b.safetensors", b"<html>")
    assert weights.main(["inspect", str(bad)]) == 2
    assert "damaged" in capsys.readouterr().out
