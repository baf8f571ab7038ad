"""Which files a command reads while it starts: seen in its tree, and the trees that belong to it.

A file that is open or mapped is seen by looking. A Python module is open for a millisecond: so
the library tree of every Python that is seen counts as a whole, and what is not resident after a
run has not been read by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from preroll.instruments.ablation import pages

LIBRARY = re.compile(r"(.*/lib(?:64)?/python3\.\d+)/")
SKIPPED = ("/proc/", "/sys/", "/dev/", "/run/")
# A folder with more files is not a command's own (a home folder, a file server).
MOST_FILES = 300_000


def open_files(pids: Iterable[int]) -> set[str]:
    """Regular files that these processes have open or mapped now."""
    found: set[str] = set()
    for pid in pids:
        found |= _mapped(pid) | _opened(pid)
    return {path for path in found if not path.startswith(SKIPPED)}


def _mapped(pid: int) -> set[str]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()
    columns = (line.split(None, 5) for line in lines)
    return {c[5] for c in columns if len(c) == 6 and c[5].startswith("/")}


def _opened(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(entry.path)  # noqa: PTH115
                if target.startswith("/"):
                    found.add(target)
    return found


def candidates(seen: Iterable[str], argv: Sequence[str], cwd: Path, python_path: str) -> list[str]:
    """Every file that a start like the one seen may read, at most `MOST_FILES`."""
    roots, found = set(), {path for path in seen if os.path.isfile(path)}  # noqa: PTH113
    for path in found:
        match = LIBRARY.match(path)
        if match:
            roots.add(match[1])
        else:
            roots.add(f"{os.path.dirname(path)}/.")  # noqa: PTH120
    named = [cwd / word for word in argv] + [Path(p) for p in python_path.split(os.pathsep) if p]
    for place in named:
        with suppress(OSError, ValueError):
            if place.is_dir():
                roots.add(str(place.resolve()))
            elif place.is_file():
                found.add(str(place.resolve()))
                roots.add(str(place.resolve().parent))
    for root in sorted(roots):
        for file in _below(root):
            if len(found) >= MOST_FILES:
                return sorted(found)
            found.add(file)
    return sorted(found)


def _below(root: str) -> Iterator[str]:
    """Regular files of a tree; of "FOLDER/." only those directly in it."""
    is_flat = root.endswith("/.")
    for folder, folders, names in os.walk(root.removesuffix("/.")):
        if is_flat:
            folders.clear()
        for name in names:
            path = f"{folder}/{name}"
            if os.path.isfile(path) and not path.startswith(SKIPPED):  # noqa: PTH113
                yield os.path.realpath(path)


def read_by_a_run(paths: Iterable[str]) -> list[str]:
    """Those with pages in the cache. All must have been dropped before the run."""
    return [path for path in paths if pages.resident_bytes(path) != 0]
