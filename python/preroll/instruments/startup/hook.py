"""The import hook: put into a command's Python processes for one run, and what it wrote.

Nothing is installed: a folder of its own on PYTHONPATH holds a `sitecustomize` that records
imports and then hands over to the user's own `sitecustomize`, if there is one.
"""

from __future__ import annotations

import marshal
import py_compile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "hook"
RECORDS = "records"
LENGTH_BYTES = 4  # as in `injected`
# How many values follow each kind of event.
VALUES = {"H": 4, "S": 3, "B": 5, "E": 6, "F": 6, "R": 6}
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
    source = Path(__file__).with_name("injected.py").read_text()
    for name, text in (("sitecustomize", SITECUSTOMIZE), (MODULE, source)):
        (folder / f"{name}.py").write_text(text)
        # Pythons of our own version need not compile it then, nor look whether it is new.
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(folder / f"{name}.py"), doraise=True, invalidation_mode=unchecked)
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
    """All processes that recorded, in the order of their starts. What was cut off when a process
    was killed is left out."""
    records = folder / RECORDS
    files: dict[str, list[Path]] = defaultdict(list)
    # A process has one file after the other; another one with its number comes much later.
    for file in sorted(records.iterdir(), key=lambda file: file.suffix) if records.is_dir() else ():
        files[file.stem].append(file)
    found = [process for some in files.values() for process in _processes(some)]
    return sorted(found, key=lambda process: process.started_ns)


def _processes(files: Sequence[Path]) -> Iterator[PythonProcess]:
    """Each begins with an event of its own."""
    reader: _Reader | None = None
    for file in files:
        for kind, values in _events(file):
            if kind == "H":
                if reader is not None:
                    yield reader.process
                reader = _Reader(PythonProcess(values[1], values[2], values[0], values[3]))
            elif reader is not None:
                reader.take(kind, values)
    if reader is not None:
        yield reader.process


def _events(file: Path) -> Iterator[tuple[str, list[Any]]]:
    """Lists of events, each behind its length; zeros from where nothing was written."""
    data, at = file.read_bytes(), 0
    while length := int.from_bytes(data[at : at + LENGTH_BYTES], "little"):
        at += LENGTH_BYTES
        try:
            events = marshal.loads(data[at : at + length])
        except (ValueError, EOFError, TypeError):
            return
        at += length
        index = 0
        while index < len(events):
            count = VALUES[events[index]]
            yield events[index], events[index + 1 : index + 1 + count]
            index += 1 + count


class _Reader:
    """Turns one process's events into loads and requests."""

    def __init__(self, process: PythonProcess) -> None:
        self.process = process
        # By the interpreter's number of a thread: what it is loading, outermost first. A name alone
        # began in the process that this one was forked from.
        self._stacks: dict[int, list[Load | str]] = defaultdict(list)
        self._tids: dict[int, int] = {}

    def take(self, kind: str, values: list[Any]) -> None:
        ident, *rest = values
        stack = self._stacks[ident]
        if kind == "S":
            self._tids[ident], name = rest
            stack.append(name)
        elif kind == "B":
            self._begin(ident, stack, *rest)
        elif kind == "R":
            self._request(stack, *rest)
        elif stack:
            self._end(stack.pop(), kind, *rest)

    def _begin(
        self, ident: int, stack: list[Load | str], t_ns: int, tid: int, asker: str, name: str
    ) -> None:
        process = self.process
        process.latest_ns = t_ns
        self._tids[ident] = tid or self._tids.get(ident, 0)
        load = Load(name, _importer(stack, asker), self._tids[ident], t_ns)
        process.loads.append(load)
        process.requests.append(Request(t_ns, load.importer, name))
        stack.append(load)

    def _end(self, load: Load | str, kind: str, t_ns: int, *used: Any) -> None:
        self.process.latest_ns = t_ns
        if isinstance(load, Load):
            load.end_ns, load.has_failed = t_ns, kind == "F"
            load.cpu_ns, load.major_faults, load.read_bytes, load.file = used

    def _request(
        self,
        stack: list[Load | str],
        name: str,
        package: str | None,
        level: int | None,
        names: Sequence[str] | None,
        asker: str,
    ) -> None:
        """What an import statement asked for: a module, and each name of its list, which is a
        module or nothing that was ever loaded. Its time is that of the last load before it."""
        if not isinstance(name, str) or (level and not isinstance(package, str)):
            return  # odd arguments, which the import itself refused or made something of
        full = name
        if level and package:
            base = package.rsplit(".", level - 1)[0]
            full = f"{base}.{name}" if name else base
        importer, t_ns = _importer(stack, asker), self.process.latest_ns
        self.process.requests.append(Request(t_ns, importer, full))
        for one in names or ():
            self.process.requests.append(Request(t_ns, importer, f"{full}.{one}"))


def _importer(stack: Sequence[Load | str], asker: str) -> str:
    if not stack:
        return asker
    return stack[-1].name if isinstance(stack[-1], Load) else stack[-1]
