"""Fixtures of the tests of `preroll serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from served import Served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], Served]]:
    """Makes services; after the test nothing of them is left, or the test fails."""
    made: list[Served] = []

    def make(toml: str) -> Served:
        folder = tmp_path / f"app{len(made)}"
        folder.mkdir()
        made.append(Served(folder, toml))
        return made[-1]

    yield make
    for service in made:
        service.end()
