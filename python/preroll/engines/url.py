"""A server that already runs: it is probed and served, never started or stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from preroll.config.problems import Problem
from preroll.config.secrets import resolve_secret
from preroll.engines import common
from preroll.engines.base import Engine, Launch, Listens, Probe

if TYPE_CHECKING:
    from preroll.config.schema import Stage


class Url(Engine):
    name = "url"
    default_slots = 64
    default_start_timeout_s = 30.0

    def check(self, stage: Stage) -> list[Problem]:
        return []

    def listens(self, stage: Stage) -> Listens:
        return Listens.NOWHERE

    def models(self, stage: Stage) -> tuple[str, ...]:
        return stage.models

    def version(self, stage: Stage) -> str:
        return "unknown"

    def launch(self, stage: Stage, directory: Path, address: str = "") -> Launch:
        """`address` is of no use here: the stage's URL has it."""
        parts = urlsplit(stage.url or "")
        host, port = parts.hostname or "", parts.port or 80
        key = resolve_secret(stage.api_key, directory) if stage.api_key else None
        headers = (("authorization", f"Bearer {key}"),) if key else ()
        shown = f"[{host}]" if ":" in host else host
        return Launch(
            argv=(),
            env={},
            cwd=directory,
            address=f"tcp:{shown}:{port}",
            probe=Probe(stage.health, headers=headers),
            warmup=common.warmup_calls(stage, directory),
            slots=self.slots(stage),
            start_timeout_s=self.default_start_timeout_s,
            keepalive_ms=1000,
            host=host if port == 80 else f"{shown}:{port}",
            authorization=f"Bearer {key}" if key else None,
            secrets=frozenset({key} if key else ()),
        )
