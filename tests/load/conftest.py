"""A mock backend per test, and short runs of the load client against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from preroll.instruments.load.client import Client, Mock
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import Raw, read
from preroll.instruments.load.requests import Ask, parse_url, template
from preroll.instruments.load.result import Result, Targets, summarise


@pytest.fixture
def mock() -> Iterator[Callable[..., Mock]]:
    """Starts mocks with options (`ttft_ms=5`); they end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Mock(**options))


@dataclass
class Runner:
    folder: Path
    extra: Mapping[str, Any] = field(default_factory=dict)

    def raw(self, url: str, plan: Plan, ask: Ask | None = None) -> Raw:
        """Runs a plan; what it asks for is a short chat unless said otherwise."""
        server = parse_url(url)
        ask = ask or Ask(model="mock", max_tokens=8, extra=self.extra)
        file = self.folder / "records.ndjson"
        spec = plan.spec(server, [template(server, ask, "hello")], file)
        with Client(spec) as client:
            for _ in client:
                pass
        return read(file)

    def result(
        self, url: str, plan: Plan, ask: Ask | None = None, targets: Targets | None = None
    ) -> Result:
        return summarise(self.raw(url, plan, ask), plan, targets or Targets())


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)
