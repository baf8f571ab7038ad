"""The arguments and the environment that others see of this process (/proc/PID/cmdline, environ).

A fork keeps the memory in which its parent's arguments and variables were passed, and with it the
marks by which the tree of a killed holder is found: left as they are, a replica would be taken
for a part of the fork server, and ended with it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

# Fields of /proc/PID/stat, counted from 1 (proc(5)).
ARG_START, ARG_END, ENV_START, ENV_END = 48, 49, 50, 51


def _bounds() -> list[int]:
    """Where arguments and environment begin and end; zeros where the kernel does not say."""
    text = Path("/proc/self/stat").read_bytes()
    # The name, field 2, may hold spaces and parentheses: fields count from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return [int(fields[n - 3]) for n in (ARG_START, ARG_END, ENV_START, ENV_END)]


def can_replace() -> bool:
    return 0 not in _bounds()


def replace(words: Sequence[str], env: Mapping[str, str]) -> None:
    """Makes `env` the environment, here and for whoever looks, and `words` the arguments shown.

    What does not fit into the memory of the old ones is not shown; the first of both are. Raises
    OSError where the memory cannot be found.
    """
    arg_start, arg_end, env_start, env_end = bounds = _bounds()
    if 0 in bounds:
        raise OSError("this kernel does not say where a process keeps its environment")
    # Set one by one, each gets memory of its own: nothing refers to the old place any more.
    os.environ.clear()
    os.environ.update(env)
    variables = [f"{name}={value}" for name, value in env.items()]
    _write(env_start, env_end, variables)
    _write(arg_start, arg_end, words)


def _write(start: int, end: int, texts: Sequence[str]) -> None:
    """Whole texts only, each ended by a NUL, the rest filled with them."""
    room = end - start
    data = b""
    for text in texts:
        entry = os.fsencode(text) + b"\0"
        if len(data) + len(entry) > room:
            break
        data += entry
    ctypes.memset(start, 0, room)
    ctypes.memmove(start, data, len(data))
