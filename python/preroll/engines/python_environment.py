"""The Python that a stage runs on: Preroll's own, or that of another virtual environment.

Another environment sees the package `preroll` and nothing else of ours: what it has installed,
and in which versions, is its own business.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import preroll
from preroll.engines.base import Fork
from preroll.errors import InputError
from preroll.fingerprints import cache_path

FORK_SERVER = "preroll.worker.forkserver"
PRINTS_AT_ONCE = {"PYTHONUNBUFFERED": "1"}
"""A line that waits in a buffer is stamped too late."""
INSTALL = "the worker needs it, and nothing else"


@dataclass(frozen=True, slots=True)
class Environment:
    """`program`: the interpreter's path as it was given: resolved, it would leave its venv."""

    program: Path
    is_own: bool

    @classmethod
    def of(cls, python: str | None, directory: Path) -> Environment:
        """The stage's key `python` (relative to the app's folder), or the interpreter we run on."""
        if python is None:
            return cls(Path(sys.executable), is_own=True)
        try:
            given = Path(python).expanduser()
        except RuntimeError:
            raise InputError(f"python {python!r}: there is no such user") from None
        return cls((directory / given).absolute(), is_own=False)

    def check(self) -> None:
        """Raises InputError when it cannot run a worker, as far as files tell."""
        if not self.is_own and not (self.program.is_file() and os.access(self.program, os.X_OK)):
            raise InputError(
                f"python {str(self.program)!r}: there is no such program; make the environment:"
                f" python3 -m venv {self.program.parent.parent}"
            )
        if not self._has_uvicorn():
            raise InputError(
                f"the package 'uvicorn' is not installed for {self.program}; {INSTALL}:"
                f" {self.program} -m pip install uvicorn"
            )

    def _has_uvicorn(self) -> bool:
        """True also where it cannot be seen from outside: the worker says so itself then."""
        if self.is_own:
            return importlib.util.find_spec("uvicorn") is not None
        root = self.program.parent.parent
        sees_others = "include-system-site-packages = true"
        with suppress(OSError):
            if sees_others not in (root / "pyvenv.cfg").read_text():
                return any(root.glob("lib/python3*/site-packages/uvicorn"))
        return True

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """What the worker's environment needs besides the stage's own `env`."""
        if self.is_own:
            return {}
        paths = [str(package_folder()), *filter(None, [env.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(paths)}

    def fork_server(self, imports: Sequence[str], env: Mapping[str, str], cwd: Path) -> Fork:
        """The process that replicas with this environment are forked from."""
        return Fork(str(self.program), FORK_SERVER, tuple(imports), env, cwd)


def package_folder() -> Path:
    """A folder that holds the package `preroll` (as a symbolic link) and nothing else.

    Raises InputError when it cannot be made.
    """
    package = Path(preroll.__file__).parent
    digest = hashlib.sha256(str(package).encode()).hexdigest()[:12]
    folder = cache_path().parent / "worker" / digest
    link = folder / "preroll"
    try:
        if link.is_symlink() and link.readlink() == package:
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f".preroll.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(package)
        fresh.replace(link)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made ({error.strerror}); a stage with a Python of its own needs"
            " it: set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return folder
