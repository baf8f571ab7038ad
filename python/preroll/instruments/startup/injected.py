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
from time import monotonic_ns, thread_time_ns

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # a Python that was built without it
    getrusage = None  # type: ignore[assignment]

# Frames of this name are left out of tracebacks and skipped by warnings, as the importer's own.
FILENAME = "<frozen importlib._bootstrap>"
FLAGS = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_CLOEXEC

bootstrap = sys.modules["_frozen_importlib"]
original_import = builtins.__import__
original_load = bootstrap._find_and_load
get_ident = _thread.get_ident
get_native_id = _thread.get_native_id

folder = ""
path = ""
stacks: dict[int, list[str]] = {}  # thread -> modules that it is loading, outermost first
seen: set[object] = set()  # requests that need no second record
waiting: list[str] = []  # records that go out with the next one


def write(record: str) -> None:
    """Opened anew each time: a program that closes all descriptors must not make us write into
    whatever gets their number. A process that is killed has lost nothing."""
    waiting.append(record)
    text = "".join(waiting)
    waiting.clear()
    try:
        file = posix.open(path, FLAGS, 0o600)
        try:
            posix.write(file, text.encode("utf-8", "backslashreplace"))
        finally:
            posix.close(file)
    except OSError:
        pass


def io_bytes() -> tuple[int, int]:
    """Bytes that this thread has read by calls, and those of calls and faults from storage."""
    try:
        file = posix.open("/proc/thread-self/io", posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            lines = posix.read(file, 256).split(b"\n")
        finally:
            posix.close(file)
        return int(lines[0][7:]), int(lines[4][12:])
    except (OSError, ValueError, IndexError):
        return 0, 0


def usage() -> tuple[int, int, int, int]:
    faults = getrusage(RUSAGE_THREAD).ru_majflt if getrusage is not None else 0
    return (thread_time_ns(), faults, *io_bytes())


def origin_of(name: str) -> str:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return f"{getattr(spec, 'origin', None) or ''}\t{getattr(spec, 'cached', None) or ''}"


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
    importer = stack[-1] if stack else asker()
    if name in sys.modules:
        request(importer, name)
        return original_load(name, import_)
    tid = get_native_id()
    before = usage()
    write(f"B\t{monotonic_ns()}\t{tid}\t{importer}\t{name}\n")
    stack.append(name)
    state, origin = "F", "\t"
    try:
        module = original_load(name, import_)
        state, origin = "E", origin_of(name)
        return module
    finally:
        stack.pop()
        spent = "\t".join([str(b - a) for a, b in zip(before, usage())])  # noqa: B905 (3.9)
        write(f"{state}\t{monotonic_ns()}\t{tid}\t{name}\t{spent}\t{origin}\n")


def request(importer: str, name: str) -> None:
    key = (importer, name)
    if key not in seen:
        seen.add(key)
        record = f"R\t{monotonic_ns()}\t{importer}\t{name}\n"
        if stacks.get(get_ident()):
            waiting.append(record)
        else:
            write(record)


def absolute(name: str, of: dict[str, object], level: int) -> str:
    if not level:
        return name
    package = str(of.get("__package__") or "")
    if not package:
        package = str(of["__name__"])
        if "__path__" not in of:
            package = package.rpartition(".")[0]
    base = package.rsplit(".", level - 1)[0]
    return f"{base}.{name}" if name else base


def note(importer: str, name: str, of: dict[str, object], names: object, level: int) -> None:
    """Records what an import that succeeded has asked for."""
    full = absolute(name, of, level)
    request(importer, full)
    for attribute in names or ():  # type: ignore[attr-defined]
        if f"{full}.{attribute}" in sys.modules:
            request(importer, f"{full}.{attribute}")


def import_(name, globals=None, locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
    stack = stacks.get(get_ident())
    try:
        importer = stack[-1] if stack else globals["__name__"]
        key = (importer, name, level, fromlist, level and globals["__name__"])
        if key in seen:
            return original_import(name, globals, locals, fromlist, level)
    except (TypeError, KeyError):
        key = None
    module = original_import(name, globals, locals, fromlist, level)
    try:
        if key is not None:
            note(importer, name, globals or {}, fromlist, level)
            seen.add(key)
    except Exception:
        pass
    return module


def begin(where: str) -> None:
    """Starts recording into a file of this process below `where`."""
    global folder, path
    folder = where
    path = f"{where}/{posix.getpid()}.{monotonic_ns()}"
    version = ".".join(map(str, sys.version_info[:3]))
    now = f"{monotonic_ns()}\t{posix.getpid()}\t{posix.getppid()}\t{get_native_id()}"
    write(f"H\t{now}\t{version}\n")


def in_child() -> None:
    """After a fork: only this thread lives on, and records go into a file of this process."""
    ident = get_ident()
    mine = stacks.get(ident)
    stacks.clear()
    if mine:
        stacks[ident] = mine
    waiting.clear()
    begin(folder)


def install(where: str) -> None:
    begin(where)
    import_.__name__ = import_.__qualname__ = "__import__"
    for function in (load, import_, request, write, note, asker):
        function.__code__ = function.__code__.replace(co_filename=FILENAME)
    posix.register_at_fork(after_in_child=in_child)
    setattr(bootstrap, "_find_and_load", load)  # noqa: B010 (a module has no such attribute for mypy)
    builtins.__import__ = import_
