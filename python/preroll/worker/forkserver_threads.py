"""Thread pools of numeric libraries: none may start in the fork server, all must in a replica.

OpenBLAS and NumExpr start their threads when they are loaded; a variable keeps them at one, and a
replica sets the number through the library itself. OpenMP and MKL start theirs at the first
parallel region, of which an import has none: they are left alone, because the number that OpenMP
reads at loading is the one that every later thread begins with.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# What decides in the libraries themselves, in their order.
COUNTS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
# Builds differ in prefix (scipy's wheels) and suffix (64-bit integers).
SETTERS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}"
    for prefix in ("", "scipy_")
    for suffix in ("", "64_", "_64")
)


@contextmanager
def kept_from_starting() -> Iterator[None]:
    """Libraries that are loaded inside start no threads."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def restore(env: Mapping[str, str]) -> None:
    """As many threads as the libraries would have: what `env` says, else one for each processor
    that this process may use."""
    count = next((int(env[n]) for n in COUNTS if env.get(n, "").isdecimal()), 0)
    count = count or len(os.sched_getaffinity(0))
    for path in loaded("openblas"):
        library = ctypes.CDLL(path)
        for name in SETTERS:
            with suppress(AttributeError):
                getattr(library, name)(count)
    numexpr = sys.modules.get("numexpr")
    if numexpr is not None:
        with suppress(Exception):
            numexpr.set_num_threads(int(env.get("NUMEXPR_NUM_THREADS", count)))


def loaded(word: str) -> list[str]:
    """Paths of the shared libraries of this process whose names contain `word`."""
    found: dict[str, None] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and word in Path(fields[5]).name:
            found[fields[5]] = None
    return list(found)
