"""One stage at run time: its supervisor's actions carried out, its replicas as the door's tables
need them, its starts measured."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from preroll.clock import boot_id
from preroll.control.autoscaler import ReplicaCounts, StageScaler
from preroll.control.policies import policy_for
from preroll.control.supervisor import Action, Drain, Kill, Launch, Replica, StageSupervisor
from preroll.core import Decision, ReplicaState, Start
from preroll.engines.base import Engine, Listens
from preroll.errors import PrerollError, UnavailableError
from preroll.events import start_data
from preroll.serve.cause import last_line
from preroll.serve.record import ReplicaRecord, spec_digest
from preroll.serve.replica import ReplicaRunner
from preroll.serve.tables import Endpoint, StartEstimate

if TYPE_CHECKING:
    from preroll.config import Stage
    from preroll.serve.services import Services

SUFFIX_CHARACTERS = "abcdefghjkmnpqrstuvwxyz23456789"
UNMEASURED_START_MS = 1000
"""Before the first measurement a request is let wait rather than refused on a guess."""
MAX_STARTS = 50


def quantile(values: Iterable[float], share: float) -> float | None:
    """Nearest-rank quantile; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(slots=True)
class StageRunner:
    """Carries out what the supervisor of one stage decides."""

    services: Services
    stage: Stage
    engine: Engine
    limit_source: str
    supervisor: StageSupervisor = field(init=False)
    scaler: StageScaler = field(init=False)
    runners: dict[str, ReplicaRunner] = field(default_factory=dict)
    starts_s: list[float] = field(default_factory=list)
    source: str | None = None
    last_start: Start | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _alarm: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        digest = spec_digest(self.engine, self.stage, self.services.directory)
        self.supervisor = StageSupervisor(self.name, digest, _suffix, record=self._record)
        parameters = self.stage.scaling
        self.scaler = StageScaler(parameters, policy_for(parameters))

    @property
    def name(self) -> str:
        return self.stage.name

    # What others ask -------------------------------------------------------------------------

    def endpoints(self) -> list[Endpoint]:
        """The replicas that the door may use or still uses."""
        return [
            self._endpoint(runner)
            for runner in self.runners.values()
            if runner.replica.ready_s is not None
            and runner.replica.state in (ReplicaState.READY, ReplicaState.DRAINING)
        ]

    def estimate(self) -> StartEstimate | None:
        """What the door may tell a request that waits; None when nothing can be started."""
        starting = [r for r in self.supervisor.live() if r.is_starting]
        can_start = self.stage.scaling.max_replicas > 0 and not self.supervisor.is_open
        if not starting and not can_start:
            return None
        p90_s = quantile(self.starts_s, 0.9)
        expected_ms = UNMEASURED_START_MS if p90_s is None else round(p90_s * 1000)
        began = [r.spawned_s or r.since_s for r in starting]
        return StartEstimate(expected_ms, round(min(began) * 1e9) if began else None)

    def cause(self) -> str | None:
        """Why nothing starts, in one line for clients; None while nothing is known to be wrong."""
        supervisor = self.supervisor
        is_failing = supervisor.is_open or supervisor.is_blocked or supervisor.wake_s() is not None
        if not is_failing or not supervisor.last_failure:
            return None
        return last_line(supervisor.last_failure)

    def counts(self) -> ReplicaCounts:
        live = self.supervisor.live()
        ready = [r for r in live if r.state is ReplicaState.READY]
        newest_s = max((r.ready_s or 0.0 for r in ready), default=0.0)
        return ReplicaCounts(len(ready), len(live) - len(ready), newest_s)

    # What others tell ------------------------------------------------------------------------

    def adopt(self, record: ReplicaRecord) -> None:
        """Takes over a running replica of an earlier control."""
        replica = Replica(
            id=record.id,
            ordinal=record.ordinal,
            digest=record.digest,
            state=ReplicaState.READY if record.ready_ns else ReplicaState.BOOTING,
            since_s=(record.ready_ns or record.placed_ns) / 1e9,
            spawned_s=record.placed_ns / 1e9,
            ready_s=record.ready_ns / 1e9 if record.ready_ns else None,
        )
        self.services.devices.hold(record.id, record.assignment)
        self.supervisor.adopt(replica)
        self._run(replica, record, adopted=True)

    def measured(self, starts_s: Iterable[float]) -> None:
        """Durations of earlier starts of this stage, oldest first."""
        self.starts_s = [*starts_s][-MAX_STARTS:]
        self.scaler.start_s = quantile(self.starts_s, 0.5)

    def use_measured(self, samples_s: Sequence[float], source: str) -> None:
        """Entries of the measurements file go before what this state directory has seen."""
        self.source = source
        self.measured([*samples_s, *self.starts_s])

    def want(self, decision: Decision) -> None:
        now_s = self.services.now_s()
        self._perform(self.supervisor.want(decision.replicas, decision.reason, now_s))

    def demand(self, waiting: int) -> None:
        """A request is held and nothing is ready: starts without waiting for the next tick."""
        if not self.supervisor.live() and self.stage.scaling.max_replicas > 0:
            self.want(self.scaler.demand(1))

    def scale(self, state: dict[str, Any], asked_s: float, wall_s: float) -> None:
        """One tick with the door's counters of this stage, asked for at `asked_s`."""
        now_s = self.services.now_s()
        observation = self.scaler.observe(state, self.counts(), now_s, wall_s, asked_s)
        if observation.queued and not self.supervisor.live():
            self.demand(observation.queued)
        else:
            self.want(self.scaler.decide(observation))

    async def stop_all(self) -> None:
        """Ends every replica of the stage; returns when nothing of them is left."""
        self.leave()
        await asyncio.gather(*(self._end(replica_id) for replica_id in self.runners))

    async def _end(self, replica_id: str) -> None:
        data: dict[str, Any] = {"to": ReplicaState.STOPPED, "reason": "preroll stops"}
        try:
            await self.services.backend.stop(replica_id, self.stage.stop_grace_s)
            await self.services.backend.release(replica_id)
        except PrerollError as error:
            data["error"] = str(error)
        self._record("state", replica_id, data)

    def status(self) -> dict[str, Any]:
        """For `ps`: what is wanted and why, what failed last, what is known of starts."""
        supervisor = self.supervisor
        return {
            "engine": self.stage.engine,
            "max_concurrency": self.engine.slots(self.stage),
            "limit_source": self.limit_source,
            "wanted": supervisor.wanted,
            "reason": supervisor.reason,
            "circuit_open": supervisor.is_open,
            "failures": supervisor.failures,
            "retry_s": supervisor.wake_s(),
            "last_failure": supervisor.last_failure,
            "start_p50_s": quantile(self.starts_s, 0.5),
            "start_p90_s": quantile(self.starts_s, 0.9),
            "num_starts": len(self.starts_s),
            "source": self.source or f"{len(self.starts_s)} starts seen here",
            "replicas": {
                r.id: {"state": r.state, "since_s": r.since_s, "ready_s": r.ready_s}
                for r in supervisor.replicas.values()
            },
        }

    def leave(self) -> None:
        """Ends control's part only; the replicas live on."""
        for task in self.tasks:
            task.cancel()
        if self._alarm is not None:
            self._alarm.cancel()

    # Reports of the replicas -----------------------------------------------------------------

    def advanced(self, replica_id: str, state: ReplicaState) -> None:
        self._perform(self.supervisor.advance(replica_id, state, self.services.now_s()))

    def exited(self, replica_id: str, cause: str) -> None:
        self.runners.pop(replica_id, None)
        self.services.devices.release(replica_id)
        self._perform(self.supervisor.exited(replica_id, cause, self.services.now_s()))

    def blocked(self, replica_id: str, cause: str) -> None:
        self.runners.pop(replica_id, None)
        self.services.devices.release(replica_id)
        self._perform(self.supervisor.blocked(replica_id, cause, self.services.now_s()))

    def condemned(self, replica_id: str, cause: str) -> None:
        self._perform(self.supervisor.condemn(replica_id, cause, self.services.now_s()))

    def started(self, start: Start) -> None:
        self.last_start = start
        self.measured([*self.starts_s, start.total_s])
        data = {**start_data(start), "digest": self.supervisor.digest}
        self.services.record("start", self.name, start.replica, data)

    # Carrying out ----------------------------------------------------------------------------

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            runner = self.runners.get(action.replica.id)
            if isinstance(action, Launch):
                self._launch(action.replica)
            elif isinstance(action, Drain) and runner is not None:
                self._task(runner.drain(action.reason))
            elif isinstance(action, Kill) and runner is not None:
                self._task(runner.kill())
        self._set_alarm()
        self.services.publisher.changed()

    def _launch(self, replica: Replica) -> None:
        try:
            assigned = self.services.devices.assign(replica.id, self.stage.resources)
        except UnavailableError as error:
            self._soon(self.blocked, replica.id, str(error))
            return
        record = ReplicaRecord(
            id=replica.id,
            stage=self.name,
            ordinal=replica.ordinal,
            digest=replica.digest,
            address=self._address(replica.id),
            boot_id=boot_id(),
            placed_ns=self.services.clock.monotonic_ns(),
            devices=assigned.devices,
            share=assigned.share,
            share_bytes=assigned.memory_bytes,
        )
        self._run(replica, record, adopted=False)

    def _run(self, replica: Replica, record: ReplicaRecord, *, adopted: bool) -> None:
        try:
            launch = self.engine.launch(self.stage, self.services.directory, record.address)
        except PrerollError as error:
            self._soon(self.exited, replica.id, str(error))
            return
        runner = ReplicaRunner(
            self.services, self.stage, self.engine, replica, record, launch, self
        )
        self.runners[replica.id] = runner
        self._task(runner.run(adopted=adopted))

    def _soon(self, report: Callable[[str, str], None], replica_id: str, cause: str) -> None:
        """Reports an end later, as every end is: not while actions are carried out."""
        asyncio.get_running_loop().call_soon(report, replica_id, cause)

    def _task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        wake_s = self.supervisor.wake_s()
        if wake_s is not None:
            delay_s = max(0.0, wake_s - self.services.now_s())
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self.tick)

    def tick(self) -> None:
        """Decides again with what is known now."""
        self._perform(self.supervisor.tick(self.services.now_s()))

    def _address(self, replica_id: str) -> str:
        if self.engine.listens(self.stage) is Listens.SOCKET:
            return f"unix:{self.services.state.socket(f'{replica_id}.http')}"
        return f"tcp:127.0.0.1:{free_port()}"

    def _endpoint(self, runner: ReplicaRunner) -> Endpoint:
        launch = runner.launch
        return Endpoint(
            id=runner.record.id,
            address=launch.address,
            slots=launch.slots,
            keepalive_ms=launch.keepalive_ms,
            host=launch.host,
            model=self.engine.model_sent(self.stage),
            authorization=launch.authorization,
            is_draining=runner.replica.state is ReplicaState.DRAINING
            or runner.record.id == self.services.held,
        )

    def _record(self, kind: str, replica: str | None, data: dict[str, Any]) -> None:
        self.services.record(kind, self.name, replica, data)


def free_port() -> int:
    """A TCP port of the loopback that was free a moment ago; a crash on a race is restarted."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def _suffix() -> str:
    return "".join(secrets.choice(SUFFIX_CHARACTERS) for _ in range(4))
