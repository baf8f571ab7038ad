"""Short runs of the load client against a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preroll.instruments.load.client import Client
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import Raw, read
from preroll.instruments.load.requests import Ask, parse_url, template
from preroll.instruments.load.result import Result, Targets, summarise


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
