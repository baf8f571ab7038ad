"""Fixtures of the tests of stages under `preroll serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from served import Served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Makes services of an app file and its source, `app.py`; nothing of them is left after."""
    made: list[Served] = []

    def make(toml: str, source: str) -> Served:
        folder = tmp_path / f"app{len(made)}"
        folder.mkdir()
        (folder / "app.py").write_text(source)
        made.append(Served(folder, toml))
        return made[-1]

    yield make
    for service in made:
        service.end()
