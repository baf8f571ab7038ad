"""A stage whose server already runs (`engine = "url"`): probed and served, never started."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from preroll.control.health import HealthRecord
from preroll.engines.base import Engine, Launch
from preroll.errors import PrerollError
from preroll.serve import probing
from preroll.serve.tables import Endpoint

if TYPE_CHECKING:
    from preroll.config import Stage
    from preroll.serve.services import Services

RETRY_S = 0.5


@dataclass(slots=True)
class UrlRunner:
    """Publishes the server while its probe is answered; the door ejects it passively besides."""

    services: Services
    stage: Stage
    engine: Engine
    limit_source: str
    is_up: bool = False
    error: str | None = "not probed yet"
    launch: Launch = field(init=False)

    def __post_init__(self) -> None:
        self.launch = self.engine.launch(self.stage, self.services.directory, "")

    def endpoints(self) -> list[Endpoint]:
        if not self.is_up:
            return []
        launch = self.launch
        return [
            Endpoint(
                id=f"{self.stage.name}-url",
                address=launch.address,
                slots=launch.slots,
                keepalive_ms=launch.keepalive_ms,
                host=launch.host,
                model=self.engine.model_sent(self.stage),
                authorization=launch.authorization,
            )
        ]

    async def run(self) -> None:
        health = HealthRecord(self.services.health.within(self.stage.health_timeout_s))
        while True:
            began_s = self.services.now_s()
            try:
                await self._probe()
            except PrerollError as error:
                if health.failed(began_s, self.services.now_s()) or not self.is_up:
                    self._set(False, str(error))
            else:
                health.succeeded()
                self._set(True, None)
            await asyncio.sleep(health.delay_s() if self.is_up else RETRY_S)

    async def _probe(self) -> None:
        launch = self.launch
        timeout_s = self.services.health.within(self.stage.health_timeout_s).timeout_s
        await self.services.blocking(probing.check, launch.address, launch.probe, timeout_s)
        if not self.is_up and launch.warmup:
            await self.services.blocking(probing.warm_up, launch, launch.start_timeout_s)

    def _set(self, is_up: bool, error: str | None) -> None:
        if is_up != self.is_up:
            kind = "upstream_up" if is_up else "upstream_down"
            self.services.record(kind, self.stage.name, data={"error": error})
        self.is_up, self.error = is_up, error
        self.services.publisher.changed()

    def status(self) -> dict[str, Any]:
        return {
            "engine": self.stage.engine,
            "max_concurrency": self.engine.slots(self.stage),
            "limit_source": self.limit_source,
            "url": self.stage.url,
            "is_up": self.is_up,
            "error": self.error,
        }
