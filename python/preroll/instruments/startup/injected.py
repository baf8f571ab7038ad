"""Runs inside the profiled command's Python processes, before their own code; see `hook`.

It must hold for any Python from 3.9 on, import next to nothing, never raise, and never print. Two
functions of the import system are wrapped: the one that loads (its wall time, processor time, major
faults and bytes read are recorded) and `__import__`, for requests that `sys.modules` answers.

The importer of a load is what the thread was loading at that moment, whatever module the import
statement stands in: that is what would have to go for the load to go.
"""

from __future__ import annotations

import _thread
import builtins
import posix
import sys
from mmap import mmap
from time import monotonic_ns, thread_time_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # a Python that was built without it
    getrusage = None  # type: ignore[assignment]

# Frames of this name are left out of tracebacks and skipped by warnings, as the importer's own.
FILENAME = "<frozen importlib._bootstrap>"
FLAGS = posix.O_RDWR | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
# The file is sparse: only what was written takes room. A start of minutes writes a few megabytes.
MAX_BYTES = 64 << 20
BLOCK_BYTES = 512  # the unit of ru_inblock

bootstrap = sys.modules["_frozen_importlib"]
original_import = builtins.__import__
original_load = bootstrap._find_and_load
get_ident = _thread.get_ident
get_native_id = _thread.get_native_id

folder = ""
records: mmap | None = None
used = 0  # bytes of it
tids: dict[int, int] = {}  # thread to the kernel's number of it
stacks: dict[int, list[str]] = {}  # thread -> modules that it is loading, outermost first
loading: set[int] = set()  # threads that are loading something
seen: set[object] = set()  # requests that need no second record
told: dict[int, list[str]] = {}  # `stacks` as of the last flush
pending: list[tuple[Any, ...]] = []  # what happened since the last flush
flushed_ns = 0
faults_before: dict[int, tuple[int, int]] = {}  # thread -> major faults, bytes from storage

# Formatting a record where it happens costs ten times as much as in a loop of many: the caches
# then hold what the program was doing. A process that is killed loses this much at most.
FLUSH_NS = 20_000_000
# Faults are asked for after loads that took longer than this.
LONG_LOAD_NS = 1_000_000


def flush() -> None:
    """Into a shared mapping: no system call, nothing of it lost when the process is killed, and no
    descriptor that a program could close and give to something else."""
    global used, flushed_ns
    events, pending[:] = pending[:], []
    flushed_ns = monotonic_ns()
    try:
        data = "".join(map(line_of, events)).encode("utf-8", "backslashreplace")
        end = used + len(data)
        if records is not None and end < MAX_BYTES:
            records[used:end] = data
            used = end
    except Exception:
        pass  # whatever odd thing was imported: the program must not notice


def line_of(event: tuple[Any, ...]) -> str:
    """An event as a line; "" for a request with odd arguments."""
    kind, ident, *facts = event
    stack = told.setdefault(ident, [])
    if kind != "R":
        if kind == "B":
            stack.append(facts[-1])
        elif kind in "EF" and stack:
            stack.pop()
        return "\t".join(map(str, (kind, *facts))) + "\n"
    name, of, level, names = facts
    try:
        importer = stack[-1] if stack else of["__name__"]
        package = level and of["__package__"]
        return f"R\t{importer}\t{name}\t{package}\t{level}\t{','.join(names or ())}\n"
    except Exception:
        return ""


def asker() -> str:
    """The module whose code asks while its thread loads nothing."""
    frame = sys._getframe(1)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""


def load(name: str, import_: object) -> object:
    ident = get_ident()
    stack = stacks.get(ident)
    if stack is None:
        stack = stacks[ident] = []
    if name in sys.modules:
        pending.append(("R", ident, name, {"__name__": asker()}, 0, ()))
        return original_load(name, import_)
    begun_ns, cpu_ns = monotonic_ns(), thread_time_ns()
    if stack:
        importer = stack[-1]
    else:
        importer = asker()
        tids[ident] = get_native_id()
    pending.append(("B", ident, begun_ns, tids[ident], importer, name))
    if not stack or begun_ns - flushed_ns > FLUSH_NS:
        flush()
    stack.append(name)
    loading.add(ident)
    state = "F"
    try:
        module = original_load(name, import_)
        state = "E"
        return module
    finally:
        stack.pop()
        ended(state, ident, name, begun_ns, cpu_ns)
        if not stack:
            loading.discard(ident)
            flush()


def ended(state: str, ident: int, name: str, begun_ns: int, cpu_ns: int) -> None:
    now_ns, cpu_ns, tid = monotonic_ns(), thread_time_ns() - cpu_ns, tids[ident]
    faults = num_bytes = 0
    if now_ns - begun_ns > LONG_LOAD_NS:
        faults, num_bytes = faults_since(tid)
    try:
        origin = sys.modules[name].__spec__.origin or ""  # type: ignore[union-attr]
    except Exception:
        origin = ""  # it failed, or is no module at all
    pending.append((state, ident, now_ns, tid, name, cpu_ns, faults, num_bytes, origin))


def faults_since(tid: int) -> tuple[int, int]:
    """Major faults and bytes from storage of this thread since it was last asked."""
    if getrusage is None:
        return 0, 0
    usage = getrusage(RUSAGE_THREAD)
    now = usage.ru_majflt, usage.ru_inblock * BLOCK_BYTES
    before = faults_before.get(tid, (0, 0))
    faults_before[tid] = now
    return now[0] - before[0], now[1] - before[1]


def import_(name, globals=None, locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
    if loading:
        pending.append(("R", get_ident(), name, globals, level, fromlist))
        return original_import(name, globals, locals, fromlist, level)
    module = original_import(name, globals, locals, fromlist, level)
    try:
        key = (globals["__name__"], name, level, tuple(fromlist or ()))
        if key not in seen:
            seen.add(key)
            pending.append(("R", get_ident(), name, globals, level, fromlist))
            flush()
    except Exception:
        pass  # odd arguments: what cannot be recorded must not fail
    return module


def begin(where: str) -> None:
    """Starts recording into a file of this process below `where`."""
    global folder, records, used
    folder, records, used = where, None, 0
    pid = posix.getpid()
    file = posix.open(f"{where}/{pid}.{monotonic_ns()}", FLAGS, 0o600)
    try:
        posix.ftruncate(file, MAX_BYTES)
        records = mmap(file, MAX_BYTES)
    finally:
        posix.close(file)
    version = ".".join(map(str, sys.version_info[:3]))
    pending.append(("H", 0, monotonic_ns(), pid, posix.getppid(), get_native_id(), version))
    flush()


def in_child() -> None:
    """After a fork: only this thread lives on, and records go into a file of this process."""
    ident = get_ident()
    mine = stacks.get(ident)
    stacks.clear()
    loading.clear()
    tids[ident] = get_native_id()
    if mine:
        stacks[ident] = mine
        loading.add(ident)
    told.clear()
    pending.clear()
    try:  # noqa: SIM105 (contextlib would be one more import in every process)
        begin(folder)
    except OSError:
        pass  # no room, or no right to write there any more: this process is not recorded


def install(where: str) -> None:
    begin(where)
    import_.__name__ = import_.__qualname__ = "__import__"
    for function in (load, import_, ended, flush, line_of, asker):
        function.__code__ = function.__code__.replace(co_filename=FILENAME)
    posix.register_at_fork(after_in_child=in_child)
    setattr(bootstrap, "_find_and_load", load)  # noqa: B010 (a module has no such attribute for mypy)
    builtins.__import__ = import_
