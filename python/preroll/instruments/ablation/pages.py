"""The page cache of files: how much of one is resident, and dropping it without privileges."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
PROT_NONE, MAP_SHARED = 0, 1
MAP_FAILED = ctypes.c_void_p(-1).value
DROP_CACHES = Path("/proc/sys/vm/drop_caches")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def resident_bytes(path: Path | str) -> int | None:
    """Bytes of the file in the page cache; None when it cannot be read.

    For a file of another user that this one may not write, the kernel says that all is resident.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return 0
        address = _libc.mmap(None, size, PROT_NONE, MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == MAP_FAILED:
        return None
    try:
        flags = ctypes.create_string_buffer((size + PAGE - 1) // PAGE)
        if _libc.mincore(address, size, flags) != 0:
            return None
        raw = flags.raw[: len(flags) - 1] if len(flags) > (size + PAGE - 1) // PAGE else flags.raw
        return sum(map((1).__and__, raw)) * PAGE
    finally:
        _libc.munmap(address, size)


def total_resident(paths: Iterable[str]) -> int:
    return sum(resident_bytes(path) or 0 for path in paths)


def drop(paths: Iterable[str]) -> None:
    """Asks the kernel to forget the files' pages. Pages that another process has mapped stay."""
    os.sync()  # a page not yet written cannot be dropped
    for path in paths:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def drop_everything() -> None:
    """Drops the clean page cache, names and inodes of the whole machine. Raises OSError for
    anyone but root."""
    os.sync()
    DROP_CACHES.write_text("3")
