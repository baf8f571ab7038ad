"""PyTorch checkpoints: the pickle is interpreted with inert stand-ins, nothing of it is run.

Every global that the pickle names becomes a record of its name, so a hostile pickle can build
records and nothing else. Layout: torch/serialization.py (zip since 1.6, one stream before).
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

from preroll.state.inspect.base import MAX_HEADER_BYTES, Contents, DamagedFileError, Tensor

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
STORAGE_BYTES = {
    "DoubleStorage": ("float64", 8), "FloatStorage": ("float32", 4), "HalfStorage": ("float16", 2),
    "BFloat16Storage": ("bfloat16", 2), "LongStorage": ("int64", 8), "IntStorage": ("int32", 4),
    "ShortStorage": ("int16", 2), "CharStorage": ("int8", 1), "ByteStorage": ("uint8", 1),
    "BoolStorage": ("bool", 1), "ComplexFloatStorage": ("complex64", 8),
    "ComplexDoubleStorage": ("complex128", 16), "UntypedStorage": ("bytes", 1),
    "Float8_e4m3fnStorage": ("float8_e4m3fn", 1), "Float8_e5m2Storage": ("float8_e5m2", 1),
}  # fmt: skip
HARMLESS_MODULES = ("torch", "collections", "numpy", "builtins", "argparse", "_codecs")


class Inert:
    """Stands for whatever the pickle wanted to build. Holds nothing, does nothing."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def append(self, value: object) -> None:
        pass

    def extend(self, values: object) -> None:
        pass


class Storage:
    """A persistent id: dtype and key of the bytes, and how many values they hold."""

    def __init__(self, dtype: str, item_bytes: int, key: str, count: int) -> None:
        self.dtype, self.item_bytes, self.key, self.count = dtype, item_bytes, key, count


class Found:
    """A tensor that the pickle would rebuild: its storage, offset (in values) and shape."""

    def __init__(self, storage: Any, offset: Any, shape: Any) -> None:
        self.storage = storage if isinstance(storage, Storage) else None
        self.offset = offset if isinstance(offset, int) else 0
        sizes = shape if isinstance(shape, tuple) else ()
        self.shape = tuple(size for size in sizes if isinstance(size, int))


def rebuild_tensor(*arguments: Any) -> Found | Inert:
    return Found(*arguments[:3]) if len(arguments) >= 3 else Inert()


def rebuild_parameter(*arguments: Any) -> Any:
    return arguments[0] if arguments else Inert()


class Interpreter(pickle.Unpickler):
    """An unpickler in which every global is inert."""

    def __init__(self, stream: io.BufferedIOBase, contents: Contents) -> None:
        super().__init__(stream)
        self.contents = contents

    def find_class(self, module: str, name: str) -> Any:
        if name.startswith("_rebuild_tensor") and module == "torch._utils":
            return rebuild_tensor
        if name.startswith("_rebuild_parameter") and module == "torch._utils":
            return rebuild_parameter
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module.split(".")[0] not in HARMLESS_MODULES or name in ("eval", "exec", "getattr"):
            note = f"the pickle names {module}.{name}: loading it runs that code"
            if note not in self.contents.notes:
                self.contents.notes.append(note)
        return type(name, (Inert,), {})

    def persistent_load(self, pid: Any) -> Any:
        if not isinstance(pid, tuple) or len(pid) < 5 or not isinstance(pid[1], type):
            return Inert()
        dtype, item_bytes = STORAGE_BYTES.get(pid[1].__name__, (pid[1].__name__, 0))
        count = pid[4] if isinstance(pid[4], int) else 0
        return Storage(dtype, item_bytes, str(pid[2]), count)


def collect(value: Any, contents: Contents, prefix: str = "", depth: int = 0) -> None:
    """Adds the tensors of nested dicts and lists, named by their path."""
    if isinstance(value, Found):
        add(value, contents, prefix)
    elif depth > 20:
        contents.unknown.append(f"'{prefix}': nested deeper than 20 levels")
    elif isinstance(value, dict):
        for key, inner in value.items():
            collect(inner, contents, f"{prefix}.{key}" if prefix else str(key), depth + 1)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            collect(inner, contents, f"{prefix}[{index}]", depth + 1)


def add(found: Found, contents: Contents, name: str) -> None:
    storage = found.storage
    if storage is None:
        contents.unknown.append(f"'{name}': its storage could not be read")
        return
    plain = Tensor(name, storage.dtype, found.shape, 0)
    location = (f"{contents.path}:{storage.key}", found.offset)
    num_bytes = plain.num_parameters * storage.item_bytes
    contents.tensors.append(Tensor(name, storage.dtype, found.shape, num_bytes, location))


def load(stream: io.BufferedIOBase, contents: Contents) -> Any:
    try:
        return Interpreter(stream, contents).load()
    except RecursionError:
        raise DamagedFileError(f"{contents.path}: the pickle is nested too deeply") from None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise DamagedFileError(f"{contents.path}: the pickle is damaged ({reason})") from None


def read_zip(path: Path, contents: Contents) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((n for n in archive.namelist() if n.endswith("/data.pkl")), None)
            if name is None:
                raise DamagedFileError(f"{path}: a zip without data.pkl: not a torch checkpoint")
            if archive.getinfo(name).file_size > MAX_HEADER_BYTES:
                raise DamagedFileError(f"{path}: data.pkl of more than 256 MiB is not read")
            collect(load(io.BytesIO(archive.read(name)), contents), contents)
            stored = {i.filename.split("/data/")[-1]: i.file_size for i in archive.infolist()}
    except zipfile.BadZipFile as error:
        raise DamagedFileError(
            f"{path}: truncated or damaged zip ({error}); fetch it again"
        ) from None
    for tensor in contents.tensors:
        key = tensor.location[0].rpartition(":")[2] if tensor.location else ""
        if stored.get(key, 0) < tensor.num_bytes:
            raise DamagedFileError(f"{path}: '{tensor.name}' needs more bytes than stored")


def read_legacy(path: Path, contents: Contents) -> None:
    with path.open("rb") as stream:
        if load(stream, contents) != LEGACY_MAGIC:
            raise DamagedFileError(f"{path}: a pickle, but not a torch checkpoint")
        load(stream, contents)  # protocol version
        load(stream, contents)  # byte order and sizes of the writer
        collect(load(stream, contents), contents)
    needed = sum({t.location: t.num_bytes for t in contents.tensors}.values())
    if needed > path.stat().st_size:
        raise DamagedFileError(f"{path}: truncated: tensors need {needed:,} bytes; fetch it again")


def read(path: Path) -> Contents:
    """Lists the tensors of a .pt, .pth or .bin checkpoint without running its pickle."""
    contents = Contents(path, "torch")
    with path.open("rb") as file:
        is_zip = file.read(4) == b"PK\x03\x04"
    (read_zip if is_zip else read_legacy)(path, contents)
    return contents
