"""A small worker with a dead part that shares an import with a live one."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

SOURCES = {
    "burn.py": """
        import time

        def burn(seconds):
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass
        """,
    "shared_part.py": "import burn; burn.burn(0.1)",
    "dead_part.py": "import burn; burn.burn(0.25); import shared_part\nclass Encoder: pass",
    "live_part.py": "import shared_part",
    "worker.py": """
        import sys, dead_part
        import live_part
        print("loading", flush=True)
        with open(sys.argv[1], "rb") as file:
            file.read()
        print("ready", flush=True)
        sys.stdin.read() if "--end" in sys.argv else __import__("time").sleep(60)
        """,
    "needs_it.py": """
        import dead_part
        if not dead_part.Encoder:
            sys_exit = __import__("sys").exit("no encoder")
        print("ready", flush=True)
        __import__("time").sleep(60)
        """,
}


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    """A folder with worker.py and what it imports, and a file of 8 MiB."""
    for name, source in SOURCES.items():
        (tmp_path / name).write_text(textwrap.dedent(source))
    (tmp_path / "weights.bin").write_bytes(b"\x07" * (8 << 20))
    return tmp_path


@pytest.fixture
def command(worker: Path) -> list[str]:
    return [sys.executable, str(worker / "worker.py"), str(worker / "weights.bin")]
