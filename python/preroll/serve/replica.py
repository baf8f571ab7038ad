"""One replica's life: spawned, followed through its start, warmed up, watched, ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from preroll.backends.base import Line, ProcessStatus
from preroll.control.health import HealthRecord
from preroll.control.supervisor import Replica
from preroll.core import ReplicaState, Start, Wait
from preroll.engines.base import Engine, Launch
from preroll.engines.bill import STATES, MarkReader, Step, bill
from preroll.engines.bill import Line as BillLine
from preroll.errors import PrerollError, UnavailableError
from preroll.serve import probing
from preroll.serve.cause import explain, how_it_ended
from preroll.serve.probing import NotServingError
from preroll.serve.record import ReplicaRecord
from preroll.serve.spawning import replica_spec
from preroll.serve.statedir import write_json

if TYPE_CHECKING:
    from preroll.config import Stage
    from preroll.serve.services import Services

LAST_LINES = 200
LINES_EVERY_S = 0.2
MAX_START_LINES = 50_000
"""More than any engine prints on purpose; one that floods does not fill control's memory."""
DRAIN_LIMIT_S = 600.0
"""How long a replica that is no longer wanted may finish its streams."""

_logger = logging.getLogger("preroll.serve")


class SpawnBlockedError(PrerollError):
    """The process could not be started, through no fault of the engine."""


class Reports(Protocol):
    """What a replica tells its stage."""

    def advanced(self, replica_id: str, state: ReplicaState) -> None: ...
    def exited(self, replica_id: str, cause: str) -> None: ...
    def blocked(self, replica_id: str, cause: str) -> None: ...
    def condemned(self, replica_id: str, cause: str) -> None: ...
    def started(self, start: Start) -> None: ...


class ReplicaRunner:
    """Runs one replica as a task; `run` ends when nothing of its process tree is left."""

    def __init__(
        self,
        services: Services,
        stage: Stage,
        engine: Engine,
        replica: Replica,
        record: ReplicaRecord,
        launch: Launch,
        reports: Reports,
    ) -> None:
        self.replica = replica
        self.record = record
        self.launch = launch
        self._services = services
        self._backend = services.backend
        self._stage = stage
        self._engine = engine
        self._reports = reports
        self._lines: list[BillLine] = []
        self._last_line = 0
        self._marks = MarkReader(engine.marks)
        self._suspicion = asyncio.Event()

    async def run(self, *, adopted: bool) -> None:
        """Reports its end exactly once, except when it is cancelled: then the process lives on."""
        try:
            cause = await self._live(adopted)
        except SpawnBlockedError as error:
            self._reports.blocked(self.record.id, str(error))
            return
        except PrerollError as error:
            cause = str(error)
        except Exception as error:
            _logger.exception("%s: control failed", self.record.id)
            cause = f"control failed: {error!r}"
            with suppress(PrerollError):
                await self._backend.kill(self.record.id)
        self._reports.exited(self.record.id, cause)

    async def drain(self, reason: str) -> None:
        """Lets running requests end, then stops the tree."""
        deadline = self._services.now_s() + DRAIN_LIMIT_S
        if self.replica.ready_s is not None:
            await self._services.publisher.published()
            pause_s = 0.02
            while self._services.now_s() < deadline and await self._is_busy():
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, 1.0)
        with suppress(PrerollError):
            await self._backend.stop(self.record.id, self._stage.stop_grace_s)

    def suspect(self) -> None:
        """The door has ejected it: probed at once instead of at the next turn."""
        self._suspicion.set()

    async def kill(self) -> None:
        with suppress(PrerollError):
            await self._backend.kill(self.record.id)

    async def _is_busy(self) -> bool:
        try:
            door = self._services.door
            return (
                await self._services.blocking(door.in_flight, self._stage.name, self.record.id) > 0
            )
        except PrerollError:
            return True  # nobody knows: wait for the door, within the limit

    # Life ------------------------------------------------------------------------------------

    async def _live(self, adopted: bool) -> str:
        ended: asyncio.Task[ProcessStatus] | None = None
        try:
            if self.replica.state is not ReplicaState.READY:
                async with self._services.devices.starting(self.record.assignment):
                    if not adopted:
                        await self._spawn()
                    ended = asyncio.create_task(self._ended())
                    await self._until(ended, self._become_ready())
            ended = ended or asyncio.create_task(self._ended())
            if not ended.done():
                await self._until(ended, self._watch())
            return await self._account(await ended)
        finally:
            if ended is not None:
                ended.cancel()

    async def _until(
        self, ended: asyncio.Task[ProcessStatus], work: Coroutine[Any, Any, None]
    ) -> None:
        """Works until done or the process ends. What does not serve is condemned and waited for."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait((ended, task), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        except NotServingError as error:
            lines = [line.text for line in await self._last_lines()]
            self._reports.condemned(self.record.id, explain(str(error), lines))
            await asyncio.wait((ended,))
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, PrerollError):
                await task

    async def _spawn(self) -> None:
        record_path = self._services.state.replica_file(self.record.id)
        spec = replica_spec(self.record.id, self._stage, self.launch, self.record.assignment)
        try:
            record_path.parent.mkdir(parents=True, exist_ok=True)
            write_json(record_path, self.record.to_json())
            await self._services.forks.start(self._stage.name, spec, self.launch)
        except (OSError, PrerollError) as error:
            raise SpawnBlockedError(f"not started: {error}") from error
        self._reports.advanced(self.record.id, ReplicaState.BOOTING)

    async def _ended(self) -> ProcessStatus:
        """The last status, once nothing of the tree is left; also when its holder was killed."""
        while True:
            try:
                return await self._backend.wait(self.record.id)
            except UnavailableError:
                status = await self._last_status()
                if status.has_exited:
                    return status
                await asyncio.sleep(0.05)

    async def _last_status(self) -> ProcessStatus:
        with suppress(UnavailableError):
            return await self._backend.status(self.record.id)
        await self._backend.adopt()  # its holder was killed: what is left of the tree ends too
        return await self._backend.status(self.record.id)

    async def _account(self, status: ProcessStatus) -> str:
        lines = [line.text for line in await self._last_lines()]
        how = how_it_ended(status)
        data = {"how": how, "oom_kills": status.oom_kills, "limits": dict(status.limits_applied)}
        self._services.record("exit", self._stage.name, self.record.id, data)
        with suppress(PrerollError):
            await self._backend.release(self.record.id)
        return explain(how, lines)

    async def _last_lines(self) -> list[Line]:
        try:
            status = await self._backend.status(self.record.id)
            since = max(0, status.lines - LAST_LINES)
            return [line async for line in self._backend.lines(self.record.id, since)]
        except PrerollError:
            return []

    # Start -----------------------------------------------------------------------------------

    async def _become_ready(self) -> None:
        status = await self._backend.status(self.record.id)
        spawned_ns = status.spawned_ns or self.record.placed_ns
        follower = asyncio.create_task(self._follow())
        try:
            await self._healthy(spawned_ns)
            healthy_ns = self._services.clock.monotonic_ns()
            self._reports.advanced(self.record.id, ReplicaState.WARMING)
            left_s = self.launch.start_timeout_s - (healthy_ns - spawned_ns) / 1e9
            await self._services.blocking(probing.warm_up, self.launch, max(left_s, 1.0))
        finally:
            follower.cancel()
        ready_ns = self._services.clock.monotonic_ns()
        self._reports.advanced(self.record.id, ReplicaState.READY)
        self._remember_ready(ready_ns)
        await self._read_lines()
        steps = [Step(healthy_ns, Wait.WARM, "warm-up")]
        marks = self._engine.marks
        lines = self._lines
        name = self._stage.name
        start = bill(self.record.id, name, spawned_ns, ready_ns, lines, marks, steps)
        self._reports.started(replace(start, is_forked=status.is_forked))

    def _remember_ready(self, ready_ns: int) -> None:
        self.record = replace(self.record, ready_ns=ready_ns)
        try:
            write_json(self._services.state.replica_file(self.record.id), self.record.to_json())
        except OSError as error:
            _logger.warning("%s: readiness not noted: %s", self.record.id, error)

    async def _healthy(self, spawned_ns: int) -> None:
        stop = threading.Event()
        launch = self.launch
        try:
            await self._services.blocking(
                probing.wait_until_healthy,
                launch.address,
                launch.probe,
                spawned_ns / 1e9,
                launch.start_timeout_s,
                stop,
            )
        finally:
            stop.set()

    async def _follow(self) -> None:
        """Reads the start's lines now and then: they are stamped already, and an engine that
        prints much should not cost its holder and control a wake-up per line."""
        while True:
            await self._read_lines()
            await asyncio.sleep(LINES_EVERY_S)

    async def _read_lines(self) -> None:
        """Collects new lines and shows the states that they announce."""
        with suppress(PrerollError):
            async for line in self._backend.lines(self.record.id, self._last_line):
                self._last_line = line.n
                if len(self._lines) < MAX_START_LINES:
                    self._lines.append(BillLine(line.t_ns, line.text))
                matched = self._marks.match(line.text)
                if matched and matched[0].then is not None:
                    state = STATES[matched[0].then]
                    if state is not ReplicaState.WARMING:  # that one is said by our own warm-up
                        self._reports.advanced(self.record.id, state)

    # Ready -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Probes a ready replica for ever. Raises NotServingError when it has failed too often."""
        health = HealthRecord(self._services.health.within(self._stage.health_timeout_s))
        launch = self.launch
        while True:
            began_s = self._services.now_s()
            try:
                timeout_s = health.policy.timeout_s
                await self._services.blocking(
                    probing.check, launch.address, launch.probe, timeout_s
                )
                health.succeeded()
            except UnavailableError as error:
                if health.failed(began_s, self._services.now_s()):
                    raise NotServingError(
                        f"{health.failures} health probes failed in a row, for"
                        f" {self._stage.health_timeout_s:g} s (health_timeout); the last: {error}"
                    ) from error
            self._suspicion.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(health.delay_s()):
                    await self._suspicion.wait()
