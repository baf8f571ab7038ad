"""What the parts of one `preroll serve` share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from preroll.backends.devices import Devices
from preroll.clock import Clock, SystemClock
from preroll.control.health import HealthPolicy

if TYPE_CHECKING:
    from preroll.backends.base import Backend
    from preroll.events import EventLog
    from preroll.serve.door import Door
    from preroll.serve.forkservers import ForkServers
    from preroll.serve.publish import Publisher
    from preroll.serve.statedir import StateDir

T = TypeVar("T")
Watcher = Callable[[str, str | None, str | None, dict[str, Any]], None]
"""Called with kind, stage, replica and data of each event, for progress on the terminal."""


def _ignore(kind: str, stage: str | None, replica: str | None, data: dict[str, Any]) -> None:
    pass


@dataclass(slots=True)
class Services:
    """`door`, `publisher` and `forks` are set by the controller before any replica starts."""

    directory: Path
    state: StateDir
    log: EventLog
    backend: Backend
    health: HealthPolicy = field(default_factory=HealthPolicy)
    watcher: Watcher = _ignore
    clock: Clock = field(default_factory=SystemClock)
    door: Door = field(init=False)
    publisher: Publisher = field(init=False)
    forks: ForkServers = field(init=False)
    devices: Devices = field(default_factory=lambda: Devices({}))
    held: str | None = None
    """The replica that a measurement holds; the door sends it nothing new."""

    def now_s(self) -> float:
        return self.clock.monotonic_ns() / 1e9

    def record(
        self,
        kind: str,
        stage: str | None = None,
        replica: str | None = None,
        data: dict[str, Any] | None = None,
        *,
        durable: bool = True,
    ) -> None:
        """Logs one event and shows it; never waits for the disk."""
        future = self.log.append(kind, stage=stage, replica=replica, data=data, durable=durable)
        future.add_done_callback(lambda f: f.exception())  # the log itself says what is wrong
        self.watcher(kind, stage, replica, data or {})

    async def blocking(self, call: Callable[..., T], *args: Any) -> T:
        """Runs a blocking call in a thread that does not hold up the end of control.

        A pool's threads are waited for at exit: a warm-up of ten minutes, or the digest of
        hundreds of gigabytes, must not be.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(done: Callable[[], None]) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody asks any more
                loop.call_soon_threadsafe(lambda: None if future.done() else done())

        def run() -> None:
            try:
                result = call(*args)
            except Exception as error:
                failure = error
                settle(lambda: future.set_exception(failure))
            else:
                settle(lambda: future.set_result(result))

        threading.Thread(target=run, name="preroll-call", daemon=True).start()
        return await future
