"""The replica state machine, driven by hand: no process, no clock."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from preroll.control.supervisor import (
    Action,
    Drain,
    Kill,
    Launch,
    Replica,
    RestartPolicy,
    StageSupervisor,
)
from preroll.core import ReplicaState

S = ReplicaState


class Recorded(list[tuple[str, str | None, dict[str, Any]]]):
    def __call__(self, kind: str, replica: str | None, data: dict[str, Any]) -> None:
        self.append((kind, replica, data))

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self]


def make(digest: str = "v1", **policy: Any) -> tuple[StageSupervisor, Recorded]:
    record = Recorded()
    names = itertools.count()
    supervisor = StageSupervisor(
        "chat", digest, lambda: f"s{next(names)}", RestartPolicy(**policy), record
    )
    return supervisor, record


def launched(actions: list[Action]) -> list[Replica]:
    return [a.replica for a in actions if isinstance(a, Launch)]


def drained(actions: list[Action]) -> list[Replica]:
    return [a.replica for a in actions if isinstance(a, Drain)]


def make_ready(supervisor: StageSupervisor, replica: Replica, now: float) -> list[Action]:
    actions: list[Action] = []
    for state in (S.BOOTING, S.WARMING, S.READY):
        actions += supervisor.advance(replica.id, state, now)
    return actions


def started(supervisor: StageSupervisor, count: int, now: float = 0.0) -> list[Replica]:
    replicas = launched(supervisor.want(count, "test", now))
    for replica in replicas:
        make_ready(supervisor, replica, now)
    return replicas


def test_wanting_two_launches_two_with_different_ordinals() -> None:
    supervisor, _ = make()
    assert [r.ordinal for r in launched(supervisor.want(2, "file", 0.0))] == [1, 2]
    assert supervisor.want(2, "file", 1.0) == []


def test_starting_replicas_count_towards_the_wanted_number() -> None:
    supervisor, _ = make()
    assert len(launched(supervisor.want(1, "demand", 0.0))) == 1
    assert launched(supervisor.want(2, "more demand", 0.1)) != []
    assert supervisor.tick(5.0) == []


def test_states_only_move_forward() -> None:
    supervisor, record = make()
    (replica,) = launched(supervisor.want(1, "", 0.0))
    supervisor.advance(replica.id, S.LOADING, 1.0)
    supervisor.advance(replica.id, S.BOOTING, 2.0)
    assert replica.state is S.LOADING
    make_ready(supervisor, replica, 3.0)
    supervisor.advance(replica.id, S.WARMING, 4.0)
    assert replica.state is S.READY
    moves = [d["to"] for k, _, d in record if k == "state"]
    assert moves == [S.PLACED, S.LOADING, S.WARMING, S.READY]


def test_scaling_down_prefers_starting_replicas_then_the_youngest() -> None:
    supervisor, _ = make()
    first, second = started(supervisor, 2)
    first.since_s, second.since_s = 1.0, 2.0
    (third,) = launched(supervisor.want(3, "", 3.0))
    assert drained(supervisor.want(2, "", 4.0)) == [third]
    assert drained(supervisor.want(1, "", 5.0)) == [second]
    assert supervisor.ready() == [first]


def test_a_drained_replica_that_exits_is_stopped_and_not_restarted() -> None:
    supervisor, record = make()
    (replica,) = started(supervisor, 1)
    supervisor.want(0, "idle", 1.0)
    assert supervisor.exited(replica.id, "asked to", 2.0) == []
    assert record[-1][2]["to"] == S.STOPPED
    assert supervisor.replicas == {}


def test_a_crash_is_restarted_after_a_delay_that_doubles() -> None:
    supervisor, _ = make(first_delay_s=1.0, open_after=99)
    (replica,) = launched(supervisor.want(1, "", 0.0))
    now, delays = 0.0, []
    for _ in range(6):
        assert launched(supervisor.exited(replica.id, "code 1", now)) == []
        wake = supervisor.wake_s()
        assert wake is not None
        delays.append(wake - now)
        assert launched(supervisor.tick(wake - 0.001)) == []
        (replica,) = launched(supervisor.tick(wake))
        now = wake
    assert delays == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


def test_a_crash_loop_opens_the_circuit_with_the_cause_and_tries_one_at_a_time() -> None:
    supervisor, record = make(open_after=3, open_s=60.0)
    now = 0.0
    supervisor.want(4, "", now)
    for _ in range(20):
        if supervisor.is_open:
            break
        for replica in list(supervisor.replicas.values()):
            supervisor.exited(replica.id, "code 1\nImportError: libfoo", now)
        now = supervisor.wake_s() or now
        supervisor.tick(now)
    _, _, data = next(e for e in record if e[0] == "circuit_open")
    assert data["cause"].endswith("ImportError: libfoo")
    for replica in list(supervisor.replicas.values()):
        supervisor.exited(replica.id, "code 1", now)
    wake = supervisor.wake_s()
    assert wake is not None and wake - now >= 60.0
    (trial,) = launched(supervisor.tick(wake))
    assert launched(supervisor.tick(wake + 1)) == []
    make_ready(supervisor, trial, wake + 2)
    assert not supervisor.is_open
    assert "circuit_closed" in record.kinds()


def test_becoming_ready_and_dying_is_a_crash_loop_too() -> None:
    supervisor, record = make(open_after=4, stable_s=30.0)
    supervisor.want(1, "", 0.0)
    now = 0.0
    for _ in range(4):
        (replica,) = supervisor.live()
        make_ready(supervisor, replica, now)
        supervisor.exited(replica.id, "code 0", now + 1)
        now = supervisor.wake_s() or now
        supervisor.tick(now)
    assert "circuit_open" in record.kinds()


def test_a_crash_after_a_stable_time_begins_a_new_series() -> None:
    supervisor, _ = make(first_delay_s=1.0, stable_s=30.0)
    (replica,) = started(supervisor, 1)
    supervisor.exited(replica.id, "signal 9", 100.0)
    assert supervisor.failures == 1
    (replica,) = launched(supervisor.tick(101.0))
    make_ready(supervisor, replica, 102.0)
    supervisor.exited(replica.id, "signal 9", 200.0)
    assert supervisor.failures == 1


def test_a_replica_that_does_not_serve_is_killed_and_counted() -> None:
    supervisor, record = make(first_delay_s=1.0)
    (replica,) = launched(supervisor.want(1, "", 0.0))
    supervisor.advance(replica.id, S.WARMING, 1.0)
    (kill,) = supervisor.condemn(replica.id, "health answers, traffic does not", 2.0)
    assert isinstance(kill, Kill) and supervisor.failures == 1
    assert launched(supervisor.exited(replica.id, "signal 9", 2.1)) == []
    assert record[-1][2]["cause"] == "health answers, traffic does not"
    assert supervisor.failures == 1
    assert len(launched(supervisor.tick(3.0))) == 1


def test_a_start_that_could_not_begin_is_tried_again_soon_and_opens_no_circuit() -> None:
    supervisor, record = make(open_after=3)
    (replica,) = launched(supervisor.want(1, "", 0.0))
    now = 0.0
    for _ in range(20):
        assert launched(supervisor.blocked(replica.id, "no space left on device", now)) == []
        wake = supervisor.wake_s()
        assert wake is not None and wake - now <= 5.0
        (replica,) = launched(supervisor.tick(wake))
        now = wake
    assert not supervisor.is_open and supervisor.failures == 0
    assert supervisor.last_failure == "no space left on device"
    make_ready(supervisor, replica, now)
    assert supervisor.wake_s() is None
    assert len(launched(supervisor.want(3, "", now))) == 2
    assert "circuit_open" not in record.kinds()


def test_an_older_spec_is_replaced_one_by_one_and_only_after_the_new_one_is_ready() -> None:
    supervisor, _ = make("v2")
    old = [Replica(f"chat-{n}-old", n, "v1", S.READY, 0.0, 0.0, 0.0) for n in (1, 2)]
    for replica in old:
        supervisor.adopt(replica)
    actions = supervisor.want(2, "file", 1.0)
    assert drained(actions) == []
    for leaving in old:
        (new,) = launched(actions)
        actions = make_ready(supervisor, new, 2.0)
        assert drained(actions) == [leaving]
        assert len(supervisor.ready()) == 2
    assert launched(actions) == []


def test_a_new_spec_that_crashes_leaves_the_old_replica_serving() -> None:
    supervisor, _ = make("v2", open_after=2)
    supervisor.adopt(Replica("chat-1-old", 1, "v1", S.READY, 0.0, 0.0, 0.0))
    actions, now = supervisor.want(1, "file", 0.0), 0.0
    for _ in range(4):
        for replica in launched(actions):
            supervisor.exited(replica.id, "bad flag", now)
        now = supervisor.wake_s() or now
        actions = supervisor.tick(now)
    assert supervisor.is_open
    assert [r.id for r in supervisor.ready()] == ["chat-1-old"]


def test_an_adopted_replica_satisfies_the_wanted_number() -> None:
    supervisor, record = make()
    supervisor.adopt(Replica("chat-1-a", 1, "v1", S.READY, 0.0, 0.0, 0.0))
    supervisor.adopt(Replica("chat-2-b", 2, "v1", S.BOOTING, 0.0, 0.0))
    assert supervisor.want(2, "file", 1.0) == []
    assert record.kinds().count("adopted") == 2


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_events_keeps_the_bounds(seed: int) -> None:
    """Whatever happens: ordinals are unique, live replicas never exceed what is wanted for long."""
    chance = random.Random(seed)
    supervisor, _ = make(open_after=4)
    now, launches, ends = 0.0, 0, 0
    for _ in range(400):
        now += chance.expovariate(2.0)
        known = list(supervisor.replicas.values())
        match chance.randrange(6):
            case 0:
                actions = supervisor.want(chance.randrange(4), "policy", now)
            case 1 if known:
                actions = supervisor.exited(chance.choice(known).id, "code 1", now)
                ends += 1
            case 2 if known:
                actions = supervisor.condemn(chance.choice(known).id, "sick", now)
            case 3 | 4 if known:
                state = chance.choice([S.BOOTING, S.LOADING, S.WARMING, S.READY])
                actions = supervisor.advance(chance.choice(known).id, state, now)
            case _:
                actions = supervisor.tick(now)
        launches += len(launched(actions))
        ordinals = [r.ordinal for r in supervisor.replicas.values()]
        assert len(set(ordinals)) == len(ordinals)
        assert len(supervisor.live()) <= supervisor.wanted
        assert launches - ends == len(supervisor.replicas)
