"""The fixture of these tests; what it gives is in holder_bench."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from holder_bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    root = Path(tempfile.mkdtemp(prefix="h-"))
    bench = Bench(root)
    try:
        yield bench
    finally:
        bench.close()
        shutil.rmtree(root, ignore_errors=True)
