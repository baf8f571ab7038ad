"""The fixture of the door's tests; what it gives is in door_bench."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from door_bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    try:
        yield bench
    finally:
        bench.close()
