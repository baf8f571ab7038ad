"""The fixture of these tests; what it gives is in backend_lab."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_lab import Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab(Path(tempfile.mkdtemp(prefix="p-")))
    try:
        yield lab
    finally:
        lab.clean()
        run = (lab.root / "run").resolve()
        shutil.rmtree(lab.root, ignore_errors=True)
        shutil.rmtree(run, ignore_errors=True)
