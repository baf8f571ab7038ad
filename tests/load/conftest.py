"""A mock backend per test, and short runs of the load client against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from loading import Runner

from preroll.instruments.load.client import Mock


@pytest.fixture
def mock() -> Iterator[Callable[..., Mock]]:
    """Starts mocks with options (`ttft_ms=5`); they end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Mock(**options))


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)
