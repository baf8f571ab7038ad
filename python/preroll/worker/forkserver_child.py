"""From a fork of the fork server to a replica: nothing of the parent is left but its imports."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from preroll.worker import forkserver_marks, forkserver_threads, process, reporting

PR_SET_PDEATHSIG = 1
# Of argv: the interpreter, -m, and the worker's module; what follows are the worker's arguments.
NUM_OWN_WORDS = 3
ABOVE_ALL_TARGETS = 10

_libc = ctypes.CDLL(None, use_errno=True)


def run(spec: Path, parent: int, waits: int, outputs: tuple[int, int]) -> None:
    """The whole life of a replica; never returns. `parent` is about to become its holder, which
    writes to `waits` when the replica is under its limits."""
    status = 127
    try:
        # Dies with its holder, whatever ends that one.
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        os.setsid()
        take_descriptors(waits, outputs)
        if os.read(3, 1) != b"1":
            return  # the holder could not start: it has said why
        os.close(3)
        specification = json.loads(spec.read_bytes())
        settle(specification)
        status = process.main(sys.argv[1:])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        reporting.say(f"the forked replica could not start: {type(error).__name__}: {error}")
    finally:
        os._exit(status)


def take_descriptors(waits: int, outputs: tuple[int, int]) -> None:
    """Standard streams, and the waiting end as descriptor 3; everything else is closed."""
    null = os.open(os.devnull, os.O_RDONLY)
    # Copied away first: a source may stand where a target goes.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, ABOVE_ALL_TARGETS) for fd in (null, *outputs, waits)]
    for target, source in enumerate(high):
        os.dup2(source, target)
    os.closerange(4, max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1)


def settle(specification: dict[str, Any]) -> None:
    """Directory, environment, arguments, thread pools and random numbers of this very replica."""
    os.chdir(specification["cwd"])
    marks = {
        "PREROLL_HOLDER": specification["id"],
        "PREROLL_HOLDER_DIR": specification["dir"],
        "PREROLL_GENERATION": "1",
    }
    words = specification["argv"]
    forkserver_marks.replace(words, {**marks, **specification["env"]})
    sys.argv = words[NUM_OWN_WORDS - 1 :]
    forkserver_threads.restore(os.environ)
    reseed()


def reseed() -> None:
    """Replicas must not draw the same numbers. What has a seed of its own choosing is left alone
    by none of these: nothing has run yet but imports."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        with suppress(Exception):
            torch.seed()
