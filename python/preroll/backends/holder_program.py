"""A holder's program, its specification on disk, and the process itself: nothing that waits."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preroll.backends.base import ProcessSpec
from preroll.errors import InputError, UnavailableError

_logger = logging.getLogger("preroll.backends")

PROGRAM = "preroll-holder"
SPEC_VERSION = 1


class FolderBusyError(InputError):
    """A holder has the folder: for good, or for the moment that it takes to end."""


def find_program() -> Path:
    """The holder program that came with this installation, else the one in PATH."""
    scripts = Path(sysconfig.get_path("scripts"))
    if (scripts / PROGRAM).is_file():
        return scripts / PROGRAM
    found = shutil.which(PROGRAM)
    if found is None:
        raise UnavailableError(
            f"{PROGRAM} is neither in {scripts} nor in PATH; it is part of the package"
            " preroll-bin: pip install --force-reinstall preroll-bin"
        )
    return Path(found)


def to_json(spec: ProcessSpec, folder: Path, socket: Path) -> dict[str, Any]:
    """The specification as docs/protocol.md has it."""
    limits, restart = spec.limits, spec.restart
    return {
        "version": SPEC_VERSION,
        "id": spec.id,
        "dir": str(folder),
        "socket": str(socket),
        "argv": list(spec.argv),
        "env": _text_only(spec.env),
        "cwd": str(spec.cwd),
        "stdio": spec.stdio.value,
        "listen": [{"name": one.name, "address": one.address} for one in spec.listen],
        "limits": {
            "memory_bytes": limits.memory_bytes,
            "cpus": None if limits.cpus is None else list(limits.cpus),
            "nice": limits.nice,
        },
        "log": {"max_bytes": spec.log_bytes, "files": spec.log_files},
        "tail_lines": spec.tail_lines,
        "restart": restart
        and {"min_ms": round(restart.min_s * 1000), "max_ms": round(restart.max_s * 1000)},
        "stop": {"signal": spec.stop_signal, "grace_ms": round(spec.grace_s * 1000)},
        "orphans": spec.orphans.value,
        "exact_stamps": spec.exact_stamps,
    }


def _text_only(env: Mapping[str, str]) -> dict[str, str]:
    """Without variables that are no UTF-8: an inherited oddity must not stop every start."""
    kept = {key: value for key, value in env.items() if _is_text(key) and _is_text(value)}
    if dropped := [key for key in env if key not in kept]:
        _logger.warning("left out of the environment, as they are not UTF-8: %a", dropped)
    return kept


def _is_text(value: str) -> bool:
    """False for the lone surrogates by which Python carries bytes that are no UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_spec(folder: Path, value: dict[str, Any]) -> Path:
    """Writes spec.json, never under a running holder. Raises InputError with what to do."""
    path = folder / "spec.json"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w") as out:
                json.dump(value, out)
        finally:
            os.close(lock)
    except BlockingIOError as error:
        raise FolderBusyError(
            f"{value['id']}: another holder runs in {folder}; an id names one process: stop that"
            " one or take another id"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written: {error}") from error
    return path


class Detached(subprocess.Popen[bytes]):
    """A process that outlives us: letting go of it is no mistake to be warned of."""

    def __del__(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Spawned:
    """A holder that begins. `complaints`: it says there why it cannot, or lets go of it."""

    spec_path: Path
    process: Detached
    complaints: int


def spawn_holder(program: Path, spec_path: Path) -> Spawned:
    """Raises UnavailableError when the program cannot be executed."""
    read_end, write_end = os.pipe()
    try:
        process = Detached(
            [program, spec_path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=write_end,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        os.close(read_end)
        raise UnavailableError(f"{program} cannot be started: {error}") from error
    finally:
        os.close(write_end)
    return Spawned(spec_path, process, read_end)
