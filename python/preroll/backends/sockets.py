"""The directory of sockets: private, and with paths short enough for sun_path."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from preroll.errors import InputError

MAX_SOCKET_PATH = 107
"""sun_path without its final NUL."""
LONGEST_NAME = 80
"""A stage's name (63 at most), its ordinal and an extension."""


def prepare_run(root: Path) -> Path:
    """The real directory behind ROOT/run, made where it is missing.

    When paths below it would be too long for a socket, ROOT/run is a symbolic link to
    /tmp/preroll-UID/HASH. Raises InputError for one that others could enter.
    """
    run = root.absolute() / "run"
    try:
        if len(str(run)) + 1 + LONGEST_NAME > MAX_SOCKET_PATH:
            _link(run)
        elif not run.exists():
            run.mkdir(mode=0o700)
        _check_private(run.resolve())
    except OSError as error:
        raise InputError(f"{run} cannot be used for sockets: {error}") from error
    return run.resolve()


def _link(run: Path) -> None:
    base = Path(f"/tmp/preroll-{os.getuid()}")
    place = base / hashlib.sha256(str(run.parent).encode()).hexdigest()[:12]
    for folder in (base, place):
        folder.mkdir(mode=0o700, exist_ok=True)
        _check_private(folder)
    if run.is_symlink() and run.readlink() == place:
        return
    if run.is_symlink():
        run.unlink()
    elif run.exists():
        run.rmdir()
    run.symlink_to(place)


def _check_private(folder: Path) -> None:
    """In a directory that all can write to, somebody else may have made the name first."""
    facts = folder.lstat()
    mode = stat.S_IMODE(facts.st_mode)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or mode & 0o077:
        raise InputError(
            f"{folder}: owner {facts.st_uid}, mode {mode:03o}; allowed is a directory of user"
            f" {os.getuid()} with mode 700: remove it, or choose another state directory"
        )
