"""What a measurement depends on, gathered from this machine: device, driver, engine, weights."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from preroll.core import Fingerprint

if TYPE_CHECKING:
    from preroll.config import Stage

BLOCK_BYTES = 1 << 22


def cache_path() -> Path:
    """Where digests are remembered: XDG_CACHE_HOME, else ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "preroll" / "digests.json"


def fingerprint(stage: Stage, directory: Path, digests: DigestCache) -> Fingerprint:
    """The fingerprint of a stage on this machine now.

    Reads the weights once per change of a file (`digests` remembers), which for large ones takes
    as long as reading them: not for an event loop. Raises InputError when a model's file is
    missing.
    """
    from preroll.engines.base import get_engine

    engine = get_engine(stage.engine)
    files = engine.weights(stage, directory)
    return Fingerprint(
        device=device(),
        driver=driver(),
        engine=stage.engine,
        engine_version=engine.version(stage),
        args=(*stage.command, *filter(None, [stage.app]), *stage.args),
        weights_digest=digests.digest(files) if files else f"name:{stage.model or stage.url or ''}",
    )


@cache
def device() -> str:
    """The accelerators of this machine ("2x NVIDIA H200"), else its processor and CPUs."""
    names = [line.partition(",")[0].strip() for line in _nvidia()]
    if names:
        return ", ".join(f"{names.count(n)}x {n}" for n in sorted(set(names)))
    return f"{_processor()}, {len(os.sched_getaffinity(0))} CPUs"


@cache
def driver() -> str:
    """The accelerators' driver version, else the kernel's release line."""
    for line in _nvidia():
        return f"nvidia {line.partition(',')[2].strip()}"
    return f"Linux {'.'.join(platform.release().split('.')[:2])}"


@cache
def _nvidia() -> tuple[str, ...]:
    """`name, driver_version` per device; empty without the driver's program."""
    try:
        result = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line for line in result.stdout.splitlines() if line.strip())


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.machine()


class DigestCache:
    """SHA-256 of files, remembered by path, size, inode and time of change.

    The memory is a JSON file at `path`; one that is damaged or cannot be written costs time, never
    an answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            loaded = json.loads(path.read_text())
        except (OSError, ValueError):
            loaded = {}
        known = loaded if isinstance(loaded, dict) else {}
        self._known: dict[str, str] = {k: v for k, v in known.items() if isinstance(v, str)}

    def digest(self, files: Sequence[Path]) -> str:
        """The digest of a file's content, or of the names and contents of several files."""
        if len(files) == 1:
            return self._one(files[0])
        top = Path(os.path.commonpath([file.parent for file in files]))
        lines = sorted(f"{file.relative_to(top)} {self._one(file)}\n" for file in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def _one(self, file: Path) -> str:
        stat = file.stat()
        key = f"{file.resolve()}|{stat.st_size}|{stat.st_ino}|{stat.st_mtime_ns}"
        if key not in self._known:
            digest = hashlib.sha256()
            with file.open("rb") as content:
                while block := content.read(BLOCK_BYTES):
                    digest.update(block)
            self._known[key] = digest.hexdigest()
            self._save()
        return self._known[key]

    def _save(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            with os.fdopen(handle, "w") as file:
                json.dump(self._known, file, indent=0, sort_keys=True)
            Path(name).replace(self.path)
        except OSError:
            return
