"""From a file or folder to what precision it really holds: readers chosen by content, then sums."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from preroll.errors import InputError
from preroll.state.inspect import ctranslate2, gguf, onnx, safetensors, torch_pickle
from preroll.state.inspect.base import Contents, DamagedFileError, Reader, Tensor

SUFFIXES = {
    ".safetensors", ".gguf", ".onnx", ".pt", ".pth", ".bin", ".ckpt", ".plan", ".engine", ".trt",
}  # fmt: skip
TENSORRT_MAGIC = (b"ftrt", b"ptrt")
LFS_MAGIC = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class DtypeSum:
    """Distinct stored bytes of one dtype; tied names count once."""

    dtype: str
    num_tensors: int
    num_parameters: int
    num_bytes: int


@dataclass(slots=True)
class Report:
    """What a file or folder holds; `damaged` gives each unreadable file with its reason."""

    path: Path
    files: list[Contents] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def tensors(self) -> list[Tensor]:
        return [tensor for contents in self.files for tensor in contents.tensors]

    def distinct(self) -> list[Tensor]:
        """Tensors without those that share their stored bytes with an earlier one."""
        seen: set[tuple[str, int, int]] = set()
        result = []
        for tensor in self.tensors:
            if tensor.location is not None and tensor.num_bytes:
                key = (*tensor.location, tensor.num_bytes)
                if key in seen:
                    continue
                seen.add(key)
            result.append(tensor)
        return result

    def by_dtype(self) -> list[DtypeSum]:
        groups: dict[str, list[Tensor]] = {}
        for tensor in self.distinct():
            groups.setdefault(tensor.dtype, []).append(tensor)
        sums = [
            DtypeSum(
                dtype,
                len(group),
                sum(t.num_parameters for t in group),
                sum(t.num_bytes for t in group),
            )
            for dtype, group in groups.items()
        ]
        return sorted(sums, key=lambda s: -s.num_bytes)


def tensorrt(path: Path) -> Contents:
    contents = Contents(path, "tensorrt plan")
    contents.unknown.append(
        "precision per layer: a plan is TensorRT's private format; ask the same TensorRT version's "
        "EngineInspector (built with detailed profiling), on the same GPU"
    )
    return contents


def reader_for(path: Path) -> Reader:
    """The reader that fits the file's first bytes; raises when it is not a weights file at all."""
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        raise DamagedFileError(f"{path}: empty file; fetch it again")
    if head.startswith(LFS_MAGIC):
        raise DamagedFileError(f"{path}: a Git LFS pointer, not the weights; run `git lfs pull`")
    if head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        raise DamagedFileError(f"{path}: an HTML page, not the weights (a login or error page?)")
    if not any(head):
        raise DamagedFileError(
            f"{path}: starts with {len(head)} zero bytes: an unfinished download"
        )
    if head.startswith(gguf.MAGIC):
        return gguf.read
    if head.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return torch_pickle.read
    if head.startswith(TENSORRT_MAGIC) or path.suffix in (".plan", ".engine", ".trt"):
        return tensorrt
    if safetensors.looks_like(head):
        return safetensors.read
    if ctranslate2.looks_like(head):
        return ctranslate2.read
    if path.suffix == ".onnx":
        return onnx.read
    raise DamagedFileError(
        f"{path}: not a weights format that is read here (safetensors, GGUF, ONNX, torch, "
        f"CTranslate2, TensorRT plan); its first bytes are {head[:8]!r}"
    )


def weight_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES or p.name == "model.bin")


def check_index(folder: Path, report: Report) -> None:
    """Shards and tensors that an index promises and the folder lacks."""
    for index in sorted(folder.glob("*.index.json")):
        try:
            promised = dict(json.loads(index.read_text())["weight_map"])
        except (ValueError, KeyError, TypeError):
            report.damaged.append(f"{index}: not a weight index (no weight_map); fetch it again")
            continue
        for shard in sorted({str(name) for name in promised.values()}):
            if not (folder / shard).is_file():
                report.damaged.append(f"{folder / shard}: named by {index.name}, missing")
        held = {tensor.name for tensor in report.tensors}
        absent = [name for name in promised if name not in held]
        if absent and not report.damaged:
            report.damaged.append(f"{index.name}: {len(absent)} tensors missing ({absent[0]} …)")


def inspect_path(path: Path) -> Report:
    """Inspects a file or every weights file of a folder.

    Raises InputError when there is nothing to inspect. Damaged files are listed in the report.
    """
    if path.is_dir():
        files = weight_files(path)
        if not files and not any(path.glob("*.index.json")):
            raise InputError(f"{path}: no weights files here; looked for {sorted(SUFFIXES)}")
    elif path.exists() or path.is_symlink():
        files = [path]
    else:
        raise InputError(f"{path}: no such file or folder")
    report = Report(path)
    for file in files:
        if file.is_symlink() and not file.exists():
            report.damaged.append(f"{file}: a broken symbolic link to {file.readlink()}")
            continue
        try:
            report.files.append(reader_for(file)(file))
        except DamagedFileError as error:
            report.damaged.append(str(error))
        except OSError as error:
            report.damaged.append(f"{file}: cannot be read ({error.strerror})")
    if path.is_dir():
        check_index(path, report)
    add_notes(report)
    return report


def add_notes(report: Report) -> None:
    places = Counter(tensor.name for tensor in report.tensors)
    formats = {contents.format for contents in report.files}
    if len(formats) > 1:
        report.notes.append(f"several formats side by side: {', '.join(sorted(formats))}")
    else:
        twice = [name for name, count in places.items() if count > 1]
        if twice:
            report.notes.append(f"{len(twice)} tensors stand in two files ({twice[0]} …)")
    tied = len(report.tensors) - len(report.distinct())
    if tied:
        report.notes.append(f"{tied} tied: names that share the bytes of another")
    for contents in report.files:
        report.notes += [f"{contents.path.name}: {note}" for note in contents.notes[:20]]
