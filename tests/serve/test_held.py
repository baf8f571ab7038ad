"""A replica held for a measurement: the door leaves it alone while its holder lives."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from served import Served, engine_stage, until

from preroll.backends.processes import facts_of
from preroll.errors import InputError
from preroll.serve.held import held, held_replica

Serve = Callable[[str], Served]


def state_of(service: Served, replica: str) -> str:
    tables = json.loads(service.state.tables.read_text())
    found = tables["stages"]["chat"]["replicas"]
    return str(next(r["state"] for r in found if r["id"] == replica))


def test_a_held_replica_gets_no_requests_and_comes_back(serve: Serve) -> None:
    service = serve(engine_stage(replicas="2"))
    service.start()
    with held_replica(service.state, "chat") as taken:
        replica, address = taken.replica, taken.address
        assert address.startswith("unix:")
        answers = [service.chat() for _ in range(20)]
        assert [a[0] for a in answers] == [200] * 20
        assert replica not in {a[2].get("x-preroll-replica") for a in answers}
        with (
            pytest.raises(InputError, match="held by another"),
            held_replica(service.state, "chat"),
        ):
            pass
    until(lambda: state_of(service, replica) == "ready", "back in rotation")


def test_a_hold_ends_with_the_process_that_held(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    (replica,) = service.ready()
    value = {"replica": replica, "pid": os.getpid(), "start_ticks": 1}
    service.state.held.write_text(json.dumps(value))
    assert held(service.state) is None, "another process that has got the same number"
    own = facts_of(os.getpid())
    assert own is not None
    service.state.held.write_text(json.dumps(value | {"start_ticks": own.start_ticks}))
    assert held(service.state) == replica
    for damaged in ("", "[]", '{"replica": 1}', '{"pid": "x"}'):
        service.state.held.write_text(damaged)
        assert held(service.state) is None
