"""The import hook: put into a command's Python processes for one run, and what it wrote.

Nothing is installed: a folder of its own on PYTHONPATH holds a `sitecustomize` that records
imports and then hands over to the user's own `sitecustomize`, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = "hook"
RECORDS = "records"
READ_BYTES = 1 << 18
# A name that the command's own modules will not have.
MODULE = "preroll_injected"

SITECUSTOMIZE = f"""\
import sys

def _hand_over():
    here = __file__.rpartition("/")[0]
    try:
        import {MODULE} as injected
        injected.install(here + "/{RECORDS}")
    except Exception:
        pass
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    sys.modules.pop("{MODULE}", None)
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)

_hand_over()
"""


def install(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Writes the hook into `folder`; returns `env` with what makes Pythons find it."""
    (folder / RECORDS).mkdir(parents=True, mode=0o700)
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    source = Path(__file__).with_name("injected.py").read_text()
    (folder / f"{MODULE}.py").write_text(source)
    before = env.get("PYTHONPATH")
    return {**env, "PYTHONPATH": f"{folder}:{before}" if before else str(folder)}


@dataclass(slots=True)
class Load:
    """One module's load. `end_ns` None: it was still going on. Resources include what was loaded
    beneath it; `read_bytes` came from storage; `file`: its source or library."""

    name: str
    importer: str
    tid: int
    start_ns: int
    end_ns: int | None = None
    has_failed: bool = False
    cpu_ns: int = 0
    major_faults: int = 0
    read_bytes: int = 0
    file: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """An import that was asked for while `importer` was being loaded; "" is the program."""

    t_ns: int
    importer: str
    name: str


@dataclass(slots=True)
class PythonProcess:
    """What one interpreter recorded; loads in the order in which they began."""

    pid: int
    parent: int
    started_ns: int
    version: str
    loads: list[Load] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    latest_ns: int = 0


def read(folder: Path) -> list[PythonProcess]:
    """All processes that recorded, in the order of their starts. A record that was cut off when
    its process was killed is left out."""
    records = folder / RECORDS
    files = sorted(records.iterdir()) if records.is_dir() else []
    found = [process for file in files for process in _processes(file)]
    return sorted(found, key=lambda process: process.started_ns)


def _processes(file: Path) -> Iterator[PythonProcess]:
    process: PythonProcess | None = None
    going_on: dict[int, list[Load]] = {}
    text = _written(file).decode("utf-8", "replace")
    for line in text[: text.rfind("\n") + 1].splitlines():
        kind, *fields = line.split("\t")
        if kind == "H":
            t_ns, pid, parent, _ = map(int, fields[:4])
            process = PythonProcess(pid, parent, t_ns, fields[4])
        elif process is not None:
            _take(process, going_on, kind, fields)
    if process is not None:
        yield process


def _requests(process: PythonProcess, fields: list[str]) -> Iterator[Request]:
    """What an import statement asked for: a module, and each name of its list, which is a module
    or nothing that was ever loaded. Its time is that of the last load before it."""
    importer, name, package, level, names = fields
    full = name
    if level != "0":
        base = package.rsplit(".", int(level) - 1)[0]
        full = f"{base}.{name}" if name else base
    yield Request(process.latest_ns, importer, full)
    for one in names.split(",") if names else ():
        yield Request(process.latest_ns, importer, f"{full}.{one}")


def _written(file: Path) -> bytes:
    """What was written: the file is a large mapping, and zeros from there on."""
    data = b""
    with file.open("rb") as opened:
        while b"\0" not in (block := opened.read(READ_BYTES)) and block:
            data += block
    return data + block.partition(b"\0")[0]


def _take(
    process: PythonProcess, going_on: dict[int, list[Load]], kind: str, fields: list[str]
) -> None:
    if kind == "R":
        process.requests += _requests(process, fields)
        return
    t_ns, tid = int(fields[0]), int(fields[1])
    stack = going_on.setdefault(tid, [])
    process.latest_ns = t_ns
    if kind == "B":
        load = Load(fields[3], fields[2], tid, t_ns)
        process.loads.append(load)
        process.requests.append(Request(t_ns, load.importer, load.name))
        stack.append(load)
    elif stack and stack[-1].name == fields[2]:
        load = stack.pop()
        load.end_ns, load.has_failed = t_ns, kind == "F"
        load.cpu_ns, load.major_faults, load.read_bytes = (int(value) for value in fields[3:6])
        load.file = fields[6]
