"""Whether a process may be forked: what its imports left behind that a fork would break.

A fork copies one thread. Locks that others held stay locked; sockets, pipes and devices are
shared by all children; a CUDA context does not work in any of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from preroll.worker import forkserver_marks

HARMLESS = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


def descriptors() -> frozenset[int]:
    """The descriptors that are open now."""
    return frozenset(number for number, _ in _open())


def survivors(before: frozenset[int]) -> list[str]:
    """Every reason not to fork; empty: it may. `before`: descriptors open before the imports."""
    return [*_threads(), *_cuda(), *_descriptors(before), *_children(), *_environment()]


def _threads() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != os.getpid():
            with suppress(OSError):
                yield f"thread {task.name} ({(task / 'comm').read_text().strip()}) runs"


def _cuda() -> Iterator[str]:
    torch = sys.modules.get("torch")
    with suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            yield "CUDA is initialised (torch.cuda.is_initialized())"


def _descriptors(before: frozenset[int]) -> Iterator[str]:
    for number, target in _open():
        if number in before or target in HARMLESS:
            continue
        what = "a device that no child can use" if target.startswith(DEVICES) else "open"
        yield f"descriptor {number} is {what}: {target}"


def _open() -> Iterator[tuple[int, str]]:
    """Open descriptors, without the one that lists them."""
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            yield int(path.name), str(path.readlink())


def _children() -> Iterator[str]:
    with suppress(ChildProcessError):
        # Neither waits nor collects: only asks whether there is one.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        yield "it has child processes"


def _environment() -> Iterator[str]:
    if not forkserver_marks.can_replace():
        yield "this kernel does not say where a process keeps its environment"
