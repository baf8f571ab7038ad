"""Names for files that the recorder knows by number only: they were open too short a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from preroll.instruments.startup.base import Slice
from preroll.instruments.startup.hook import PythonProcess

MINOR_BITS = 20  # of the kernel's encoding of device numbers


def named(slices: Sequence[Slice], processes: Iterable[PythonProcess]) -> list[Slice]:
    """`slices` with "inode DEVICE:NUMBER" replaced where a loaded module's file has that number,
    else made readable."""
    unnamed = {one.file for one in slices if one.file and one.file.startswith("inode ")}
    names = {number: shown(number) for number in unnamed}
    if unnamed:
        sources = {load.file for p in processes for load in p.loads if load.file.startswith("/")}
        for file in (*sources, *_compiled(sources)):
            number = _number(file)
            if number in unnamed:
                names[number] = file
    if not names:
        return list(slices)
    return [replace(one, file=names.get(one.file or "", one.file)) for one in slices]


def shown(number: str) -> str:
    """What is known of a file without a name; `number` is the recorder's."""
    device, inode = map(int, number.removeprefix("inode ").split(":"))
    if device < 1 << MINOR_BITS <= inode:
        # The kernel keeps a file system's own blocks under the number of the block device.
        return f"block device {_pair(inode)} (a file system's own blocks)"
    return f"inode {inode} of device {_pair(device)}"


def _pair(device: int) -> str:
    return f"{device >> MINOR_BITS}:{device & (1 << MINOR_BITS) - 1}"


def _compiled(sources: Iterable[str]) -> Iterator[str]:
    """What stands in the caches beside these sources, for whatever Python."""
    for folder in {os.path.dirname(file) for file in sources}:  # noqa: PTH120 (as below)
        cache = f"{folder}/__pycache__"
        with contextlib.suppress(OSError):
            yield from (f"{cache}/{name}" for name in os.listdir(cache))  # noqa: PTH208


def _number(file: str) -> str:
    """The file as the recorder writes it (the kernel's encoding of device numbers)."""
    try:
        facts = os.stat(file)  # noqa: PTH116 (thousands of files: a Path for each is not free)
    except OSError:
        return ""
    device = os.major(facts.st_dev) << MINOR_BITS | os.minor(facts.st_dev)
    return f"inode {device}:{facts.st_ino}"
