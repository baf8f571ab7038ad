"""Runs inside the profiled command's Python processes, before their own code; see `hook`.

It must hold for any Python from 3.9 on, import next to nothing, never raise, and never print. Two
functions of the import system are wrapped: the one that loads (its wall time, processor time, major
faults and bytes read are recorded) and `__import__`, for requests that `sys.modules` answers.

Nothing is worked out here that `hook` can work out when the run is over: what happened is kept as
plain values in one flat list, and written by `marshal`, whose format every Python reads.
"""

import _thread
import builtins
import marshal
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
# One file. The first touch of a larger one costs milliseconds: the kernel clears more at once.
FILE_BYTES = 1 << 20
MAX_FILES = 64
LENGTH_BYTES = 4  # in front of what is written at one time
MARSHAL_VERSION = 4  # known to 3.4 and all later ones
BLOCK_BYTES = 512  # the unit of ru_inblock

bootstrap = sys.modules["_frozen_importlib"]
original_import = builtins.__import__
original_load = bootstrap._find_and_load
get_ident = _thread.get_ident
get_native_id = _thread.get_native_id

folder = ""
records: "mmap | None" = None
used = 0  # bytes of it
num_files = 0
stacks: "dict[int, list[str]]" = {}  # thread -> modules that it is loading, outermost first
loading: "set[int]" = set()  # threads that are loading something
seen: "set[object]" = set()  # requests that need no second record
pending: "list[Any]" = []  # what happened since the last flush: kinds, each with its values
record = pending.extend
flushing = _thread.allocate_lock()
flushed_ns = 0
faults_before: "dict[int, tuple[int, int]]" = {}  # thread -> major faults, bytes from storage

# Writing between two modules finds the caches full of what the program was doing, so it is done
# rarely. A process that is killed loses this much at most.
FLUSH_NS = 20_000_000
# Faults are asked for after loads that took longer than this.
LONG_LOAD_NS = 1_000_000


def flush() -> None:
    """Into a shared mapping: no system call, nothing of it lost when the process is killed, and no
    descriptor that a program could close and give to something else."""
    global flushed_ns
    if not flushing.acquire(False):
        return  # another thread is at it, or this one was interrupted in it
    try:
        flushed_ns = monotonic_ns()
        events = pending[:]
        del pending[: len(events)]
        try:
            data = marshal.dumps(events, MARSHAL_VERSION)
        except ValueError:  # not all of it is plain
            data = marshal.dumps([plain(value) for value in events], MARSHAL_VERSION)
        write(data)
    except Exception:
        pass  # whatever odd thing was imported: the program must not notice
    finally:
        flushing.release()


def plain(value: "Any") -> "Any":
    """Something that `marshal` takes: odd values are left out, and odd strings made plain."""
    if type(value) in (tuple, list):
        return tuple(map(plain, value))
    if isinstance(value, str):
        return str.__str__(value)
    return value if type(value) in (int, bool) else None


def write(data: bytes) -> None:
    """The length comes last: what was cut off when the process was killed has none."""
    global used
    start = used + LENGTH_BYTES
    if records is None or start + len(data) > len(records):
        open_file(len(data) + LENGTH_BYTES)
        start = used + LENGTH_BYTES
    if records is not None:
        records[start : start + len(data)] = data
        records[used:start] = len(data).to_bytes(LENGTH_BYTES, "little")
        used = start + len(data)


def open_file(least: int) -> None:
    """Files of one process follow each other by their numbers."""
    global records, used, num_files
    records, used, num_files = None, 0, num_files + 1
    if num_files > MAX_FILES:
        return
    size = max(FILE_BYTES, least)
    file = posix.open(f"{folder}/{posix.getpid()}.{monotonic_ns():020}", FLAGS, 0o600)
    try:
        posix.ftruncate(file, size)
        records = mmap(file, size)
    finally:
        posix.close(file)


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
        record(("R", ident, name, 0, 0, None, "" if stack else asker()))
        return original_load(name, import_)
    begun_ns, cpu_ns = monotonic_ns(), thread_time_ns()
    if stack:
        record(("B", ident, begun_ns, 0, "", name))
        if begun_ns - flushed_ns > FLUSH_NS:
            flush()
    else:
        record(("B", ident, begun_ns, get_native_id(), asker(), name))
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
    now_ns, cpu_ns = monotonic_ns(), thread_time_ns() - cpu_ns
    faults = num_bytes = 0
    if now_ns - begun_ns > LONG_LOAD_NS:
        faults, num_bytes = faults_since(ident)
    try:
        origin = sys.modules[name].__spec__.origin or ""  # type: ignore[union-attr]
    except Exception:
        origin = ""  # it failed, or is no module at all
    record((state, ident, now_ns, cpu_ns, faults, num_bytes, origin))


def faults_since(ident: int) -> "tuple[int, int]":
    """Major faults and bytes from storage of this thread since it was last asked."""
    if getrusage is None:
        return 0, 0
    usage = getrusage(RUSAGE_THREAD)
    now = usage.ru_majflt, usage.ru_inblock * BLOCK_BYTES
    before = faults_before.get(ident, (0, 0))
    faults_before[ident] = now
    return max(now[0] - before[0], 0), max(now[1] - before[1], 0)


def import_(name, globals=None, locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
    ident = get_ident()
    if ident in loading:
        package = globals.get("__package__") if level and type(globals) is dict else 0
        record(("R", ident, name, package, level, fromlist, ""))
        return original_import(name, globals, locals, fromlist, level)
    module = original_import(name, globals, locals, fromlist, level)
    try:
        asking = globals["__name__"]
        key = (asking, name, level, tuple(fromlist or ()))
        if key not in seen:
            seen.add(key)
            record(("R", ident, name, globals.get("__package__"), level, key[-1], asking))
            flush()
    except Exception:
        pass  # odd arguments: what cannot be recorded must not fail
    return module


def begin(where: str) -> None:
    """Starts recording into files of this process below `where`."""
    global folder, records, num_files
    folder, records, num_files = where, None, 0
    version = ".".join(map(str, sys.version_info[:3]))
    record(("H", monotonic_ns(), posix.getpid(), posix.getppid(), version))
    for ident, stack in stacks.items():
        for name in stack:
            record(("S", ident, get_native_id(), name))
    flush()


def in_child() -> None:
    """After a fork: only this thread lives on, and records go into a file of this process."""
    global flushing
    flushing = _thread.allocate_lock()
    ident = get_ident()
    mine = stacks.get(ident)
    stacks.clear()
    loading.clear()
    if mine:
        stacks[ident] = mine
        loading.add(ident)
    faults_before.clear()
    pending.clear()
    begin(folder)


def install(where: str) -> None:
    begin(where)
    import_.__name__ = import_.__qualname__ = "__import__"
    for function in (load, import_, ended, flush, plain, write, open_file, asker):
        function.__code__ = function.__code__.replace(co_filename=FILENAME)
    posix.register_at_fork(after_in_child=in_child)
    setattr(bootstrap, "_find_and_load", load)  # noqa: B010 (a module has no such attribute for mypy)
    builtins.__import__ = import_
