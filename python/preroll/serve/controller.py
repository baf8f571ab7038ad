"""`preroll serve`: the composition root. Owns the state directory, the door and every stage."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from preroll import __version__
from preroll.backends.base import Adoption, ProcessStatus
from preroll.backends.devices import Devices, detect
from preroll.backends.holder_program import Spawned
from preroll.backends.local import LocalBackend
from preroll.clock import boot_id
from preroll.config import App
from preroll.control.autoscaler import TICK_S
from preroll.core import Decision
from preroll.engines.base import Listens, get_engine
from preroll.errors import PrerollError, UnavailableError
from preroll.events import EventLog, read
from preroll.serve.ahead import Ahead
from preroll.serve.door import NEW_DOOR, Door, DoorEvent, is_fresh
from preroll.serve.doorhouse import DoorHouse
from preroll.serve.forkservers import ForkServers
from preroll.serve.held import held
from preroll.serve.limits import with_limits
from preroll.serve.measured import measured_starts
from preroll.serve.overuse import OveruseWatch
from preroll.serve.publish import Publisher
from preroll.serve.record import ReplicaRecord, placeholder_address
from preroll.serve.services import Services, Watcher
from preroll.serve.stage import StageRunner
from preroll.serve.statedir import Lock, StateDir, forget_old, read_json, write_json
from preroll.serve.tables import tables
from preroll.serve.upstream import UrlRunner

SECOND_LOOK_S = 2.0
"""A holder that the last control was just starting when it was killed is found by then."""

_logger = logging.getLogger("preroll.serve")


class Controller:
    """Runs one app from one state directory until `stop` or `leave`."""

    def __init__(
        self,
        app: App,
        state: StateDir,
        watcher: Watcher | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        """Takes the lock, or that of `ahead`, and what was begun there.

        Raises UnavailableError when another `preroll serve` has it.
        """
        self.app = app
        self.state = state
        state.prepare()
        self._lock = (ahead and ahead.lock) or Lock(state)
        self._backend = LocalBackend(state.root)
        self.services = Services(app.directory, state, EventLog(state.events), self._backend)
        if watcher is not None:
            self.services.watcher = watcher
        self.services.door = Door(f"unix:{state.socket('door.sock')}")
        self.services.publisher = Publisher(
            state.tables, self.services.door.admin, self._build, self._write_status
        )
        self.services.forks = ForkServers(self.services)
        self.house = DoorHouse(app, self.services)
        self.stages: dict[str, StageRunner] = {}
        self.upstreams: dict[str, UrlRunner] = {}
        self.warnings: list[str] = []
        self._is_ready = False
        self._tasks: list[asyncio.Task[None]] = []
        self._ahead = ahead
        self._begun: dict[str, Spawned] = {}

    async def start(self) -> None:
        """Adopts what runs, then brings up the rest. Raises PrerollError when it cannot."""
        self.services.record(
            "serve_started", data={"version": __version__, "app": str(self.app.path)}
        )
        self._begun = self._ahead.hand_over() if self._ahead else {}
        for spawned in self._begun.values():
            with suppress(PrerollError):  # the one who needs it will find that it is not there
                await self._backend.take(spawned)
        limits = await self.services.blocking(with_limits, self.app)
        self.app = limits.app
        self.warnings += limits.warnings
        self._make_stages(limits.sources)
        if any(s.stage.gpus or s.stage.gpu_memory_bytes for s in self.stages.values()):
            self.services.devices = Devices(await self.services.blocking(detect))
        self.services.forks.begun(self._begun)
        adoption = await self.services.backend.adopt()
        self._adopt_replicas(adoption)
        self.services.publisher.write_first()
        left = (*adoption.running, *adoption.exited)
        door = next((status for status in left if status.id == self.house.id), None)
        if self.house.id in adoption.unusable:
            door = await self.services.backend.status(self.house.id)  # with more patience
        self.warnings += await self.house.ensure(door)
        self.services.door.follow(self._door_event)
        self._for_ever(self.services.publisher.run)
        self._for_ever(self.house.watch)
        self._for_ever(self._autoscale)
        self._for_ever(OveruseWatch(self.services, self.stages).run)
        self._tasks.append(asyncio.create_task(self.services.forks.prepare()))
        self._tasks.append(asyncio.create_task(self._use_measurements()))
        self._tasks.append(asyncio.create_task(self._look_around()))
        for stage in self.stages.values():
            stage.want(self._first_wish(stage))
        for upstream in self.upstreams.values():
            self._for_ever(upstream.run)
        await self.services.publisher.published()

    async def ready(self) -> None:
        """Returns when every stage has as many ready replicas as its `min` says."""
        stages = self.stages.values()
        while not all(s.counts().num_ready >= s.stage.scaling.min_replicas for s in stages):
            await self.services.publisher.published_once()
        await self.services.publisher.published()
        self._is_ready = True
        self._write_status()

    async def abandon(self) -> None:
        """After a failed `start`: ends what it has begun, leaves what it had adopted."""
        await self._end_tasks()
        await asyncio.gather(*(self._end(name) for name in self._begun))
        for stage in self.stages.values():
            stage.leave()
        self._close("failed")

    async def hurry(self) -> None:
        """During `stop`: no longer waits for running requests."""
        with suppress(PrerollError):
            await self._backend.kill(self.house.id)

    async def stop(self, drain_s: float) -> None:
        """Ends everything: the door first, so that what was admitted is finished."""
        self.services.record("serve_stopping", data={"drain_s": drain_s})
        await self._end_tasks()
        await self.house.stop(drain_s)
        await asyncio.gather(*(stage.stop_all() for stage in self.stages.values()))
        await self._end_rest()
        self._close("stopped")

    async def _end_rest(self) -> None:
        """What was being started when the stop came, and what no stage knows."""
        adoption = await self._backend.adopt()
        rest = (*adoption.running, *adoption.exited)
        await asyncio.gather(*(self._end(status.id) for status in rest))
        for name, why in adoption.unusable.items():
            self._warn(f"{name} could not be ended: {why}")

    async def _end(self, process_id: str) -> None:
        with suppress(PrerollError):
            await self._backend.stop(process_id)
            await self._backend.release(process_id)

    async def leave(self) -> None:
        """Ends control only; door and replicas go on, for a later control to adopt."""
        await self._end_tasks()
        for stage in self.stages.values():
            stage.leave()
        self._close("left")

    def _for_ever(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A task that must not end: an error of ours is logged, and it begins again."""

        async def run() -> None:
            while True:
                try:
                    await work()
                except Exception as error:
                    _logger.exception("control failed in %s; it goes on", work.__qualname__)
                    self.services.record("control_error", data={"error": repr(error)})
                await asyncio.sleep(TICK_S)

        self._tasks.append(asyncio.create_task(run()))

    # Parts of a start ------------------------------------------------------------------------

    def _make_stages(self, limit_sources: Mapping[str, str]) -> None:
        for name, stage in self.app.stages.items():
            engine = get_engine(stage.engine)
            if engine.listens(stage) is Listens.NOWHERE:
                upstream = UrlRunner(self.services, stage, engine, limit_sources[name])
                self.upstreams[name] = upstream
                continue
            runner = StageRunner(self.services, stage, engine, limit_sources[name])
            self.stages[name] = runner
            self.services.forks.expect(
                engine.launch(stage, self.app.directory, placeholder_address(engine.listens(stage)))
            )
            runner.measured(self._earlier_starts(name, runner.supervisor.digest))

    def _earlier_starts(self, stage: str, digest: str) -> list[float]:
        try:
            events = list(read(self.state.events, kinds=("start",), limit=1000))
        except UnavailableError:
            return []
        return [
            (e.data["ready_ns"] - e.data["spawned_ns"]) / 1e9
            for e in events
            if e.stage == stage and e.data.get("digest") == digest
        ]

    def _adopt_replicas(self, adoption: Adoption) -> None:
        for leftover in adoption.leftovers:
            data = {"killed": leftover.num_killed, "reason": leftover.reason}
            self.services.record("leftover", None, leftover.id, data)
        for name in adoption.unusable:
            if name != self.house.id:
                self._tasks.append(asyncio.create_task(self._adopt_late(name)))
        for status in (*adoption.running, *adoption.exited):
            if status.id != self.house.id and status.id not in self.services.forks.ids:
                self._take(status)

    def _take(self, status: ProcessStatus) -> None:
        record = ReplicaRecord.from_json(read_json(self.state.replica_file(status.id)))
        stage = self.stages.get(record.stage) if record else None
        if record is None or stage is None or status.has_exited:
            reason = "ended" if status.has_exited else "no stage of the app file wants it"
            self._tasks.append(asyncio.create_task(self._dismiss(status.id, reason)))
        else:
            stage.adopt(record)

    async def _adopt_late(self, process_id: str) -> None:
        """A holder that was silent is asked again, with more patience, while the rest goes on."""
        try:
            status = await self.services.backend.status(process_id)
        except PrerollError as error:
            self._warn(f"{process_id}: not adopted: {error}")
        else:
            self._take(status)
            self.services.publisher.changed()

    async def _dismiss(self, process_id: str, reason: str) -> None:
        self.services.record("dismissed", None, process_id, {"reason": reason})
        await self.services.publisher.published()  # the door sends it nothing new
        await self._end(process_id)

    def _first_wish(self, stage: StageRunner) -> Decision:
        """At the beginning nothing is known of the traffic: what runs is kept, `min` is started."""
        scaling = stage.stage.scaling
        live = len(stage.supervisor.live())
        wanted = min(max(scaling.min_replicas, live), scaling.max_replicas)
        return Decision(wanted, "the app file")

    async def _look_around(self) -> None:
        """What this machine cannot do for the app is said; and the disk is kept tidy."""
        for misfit in await self.services.blocking(misfits_here, self.app):
            self._warn(misfit)
        await self.services.blocking(forget_old, self.state)
        await asyncio.sleep(SECOND_LOOK_S)
        known = {replica for stage in self.stages.values() for replica in stage.runners}
        for status in (await self._backend.adopt()).running:
            if status.id not in known | self.services.forks.ids | {self.house.id}:
                self._take(status)
        for stage in self.stages.values():
            stage.tick()

    async def _use_measurements(self) -> None:
        """Entries whose fingerprint matches are used, stale ones are said aloud."""
        try:
            found = await self.services.blocking(measured_starts, self.app)
        except PrerollError as error:
            self._warn(str(error))
            return
        for name, measured in found.items():
            if name in self.stages:
                self.stages[name].use_measured(measured.samples_s, measured.source)
            if measured.is_stale:
                self._warn(f"stage {name}: {measured.source}")
        self.services.publisher.changed()

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self.services.record("warning", data={"text": text}, durable=False)

    # While it runs ---------------------------------------------------------------------------

    def _door_event(self, event: DoorEvent) -> None:
        kind, name = str(event.get("kind")), str(event.get("stage"))
        if kind == NEW_DOOR:
            self.services.publisher.renew()
            return
        if kind == "demand":
            if name in self.stages and is_fresh(event):
                self.stages[name].demand(int(event.get("waiting", 1)))
        elif is_fresh(event):
            replica = event.get("replica")
            data = {k: v for k, v in event.items() if k not in ("kind", "stage", "replica", "seq")}
            self.services.record(f"door_{kind}", name, replica, data, durable=False)
            runner = self.stages[name].runners.get(str(replica)) if name in self.stages else None
            if kind == "replica_down" and runner is not None:
                runner.suspect()

    async def _autoscale(self) -> None:
        door = self.services.door
        while True:
            self._look_who_is_held()
            with suppress(UnavailableError):
                asked_s = self.services.now_s()
                state = await self.services.blocking(door.state)
                for name, stage in self.stages.items():
                    if name in state:
                        stage.scale(state[name], asked_s, self.services.clock.wall_s())
            await asyncio.sleep(TICK_S)

    def _look_who_is_held(self) -> None:
        replica = held(self.state)
        if replica != self.services.held:
            self.services.held = replica
            self.services.record("held", None, replica, durable=False)
            self.services.publisher.changed()

    def _build(self, version: int) -> dict[str, Any]:
        endpoints = {name: stage.endpoints() for name, stage in self.stages.items()}
        endpoints |= {name: upstream.endpoints() for name, upstream in self.upstreams.items()}
        starts = {name: stage.estimate() for name, stage in self.stages.items()}
        causes = {name: stage.cause() for name, stage in self.stages.items()}
        return tables(self.app, endpoints, starts, version, causes)

    def _write_status(self) -> None:
        stages = {name: stage.status() for name, stage in self.stages.items()}
        stages |= {name: upstream.status() for name, upstream in self.upstreams.items()}
        value = {
            "version": 1,
            "app": str(self.app.path or ""),
            "pid": os.getpid(),
            "ready": self._is_ready,
            "boot_id": boot_id(),
            "wall_s": time.time(),
            "listen": self.house.addresses,
            "stages": stages,
            "warnings": self.warnings,
            "problems": [
                p for p in (self.services.log.problem, self.services.publisher.problem) if p
            ],
        }
        try:
            write_json(self.state.status, value)
        except OSError as error:
            _logger.debug("%s: %s", self.state.status, error)

    # The end ---------------------------------------------------------------------------------

    async def _end_tasks(self) -> None:
        self.services.door.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close(self, how: str) -> None:
        self.services.record("serve_ended", data={"how": how})
        self._backend.close()
        self.services.log.close()
        self._lock.release()


def misfits_here(app: App) -> list[str]:
    from preroll.config.machine import misfits, this_machine

    return misfits(app, this_machine())
