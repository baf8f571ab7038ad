"""Control killed at any time: no stream is cut, nothing is started anew, the next one adopts."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from served import Served, engine_stage, tokens, until

from preroll.events import read

Serve = Callable[[str], Served]


def test_killing_control_cuts_no_stream_and_the_next_one_adopts_the_same_processes(
    serve: Serve,
) -> None:
    service = serve(engine_stage("--interval", "0.1", replicas="2"))
    service.start()
    pids = service.pids()
    with service.stream(max_tokens=40) as response:
        first = response.readline()
        service.kill()
        service.start()
        assert service.pids() == pids
        received = tokens(first + response.read())
    assert received[-1] == "[DONE]" and len(received) == 41
    assert len(service.starts(2)) == 2
    kinds = [e.kind for e in read(service.state.events)]
    assert kinds.count("adopted") == 2 and kinds.count("door_adopted") == 1


def test_requests_are_served_while_control_is_away(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    service.kill()
    for _ in range(20):
        assert service.chat()[0] == 200


def test_the_door_comes_back_while_control_is_away(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    service.kill()
    door = service.survey().door
    assert door is not None and door.pid
    os.kill(door.pid, signal.SIGKILL)

    def served() -> bool:
        try:
            return service.chat()[0] == 200
        except OSError:
            return False

    until(served, "the door serves again, with the tables it had")


def test_the_door_comes_back_under_control_and_its_events_are_followed(serve: Serve) -> None:
    service = serve(engine_stage(scale='{ min = 0, max = 1, idle_timeout = "1h" }'))
    service.start()
    door = service.survey().door
    assert door is not None and door.pid
    os.kill(door.pid, signal.SIGKILL)

    def served() -> bool:
        try:
            return service.chat()[0] == 200
        except OSError:
            return False

    until(served, "a demand at the new door starts the replica")


def test_the_doors_holder_is_replaced_too_and_the_new_door_has_the_tables(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    before = service.survey().door
    assert before is not None
    os.kill(before.owner_pid, signal.SIGKILL)

    def replaced() -> bool:
        after = service.survey().door
        with suppress(OSError):
            is_other = after is not None and after.owner_pid != before.owner_pid
            return is_other and service.chat()[0] == 200
        return False

    until(replaced, "another door serves on the same port")
    lost = [e for e in read(service.state.events) if e.kind == "door_lost"]
    assert "its holder was killed" in lost[0].data["reason"]
    service.wait_said("door  lost: its holder was killed")
    assert service.stop() == 0
    assert service.pids() == [] and service.holder_pids() == []


def test_port_zero_is_announced_as_the_port_it_got_and_kept_by_whoever_comes_next(
    serve: Serve,
) -> None:
    service = serve(engine_stage())
    service.file.write_text(service.file.read_text().replace(f":{service.port}", ":0"))
    service.start()

    def announced() -> int:
        line = service.wait_said("serving on http://127.0.0.1:")
        return int(line.rpartition(":")[2])

    service.port = announced()
    assert service.port != 0 and service.chat()[0] == 200
    door = service.survey().door
    assert door is not None
    os.kill(door.owner_pid, signal.SIGKILL)
    until(lambda: any(e.kind == "door_lost" for e in read(service.state.events)), "it is missed")

    def served() -> bool:
        after = service.survey().door
        with suppress(OSError):
            is_other = after is not None and after.owner_pid != door.owner_pid
            return is_other and service.chat()[0] == 200
        return False

    until(served, "the new door has the port of the old one")
    service.kill()
    service.start()
    assert announced() == service.port and service.chat()[0] == 200
    assert not any("warning" in line for line in service.output)


def test_a_start_that_was_under_way_is_taken_up_not_repeated(serve: Serve) -> None:
    service = serve(engine_stage("--listen-after", "3"))
    service.start(wait=False)
    until(lambda: service.state.holders.is_dir() and len(service.survey().replicas) == 1)
    service.kill()
    (before,) = service.survey().replicas
    service.start()
    assert service.pid_of(before.status.id) == before.status.pid
    (start,) = service.starts(1)
    assert start.spawned_ns == before.status.spawned_ns
    assert start.total_s >= 3


def test_a_holder_that_is_killed_takes_its_worker_along_and_it_is_replaced(serve: Serve) -> None:
    service = serve(engine_stage("--setsid-child"))
    service.start()
    (replica,) = service.ready()
    seen = next(s for s in service.survey().replicas if s.status.id == replica)
    before = set(service.pids())
    os.kill(seen.status.owner_pid, signal.SIGKILL)
    until(lambda: service.ready() and service.ready() != [replica], "it is replaced")
    assert service.chat()[0] == 200
    left = before & set(service.pids())
    door = service.survey().door
    assert left == {door.pid if door else 0}


def test_a_holder_killed_while_control_is_away_is_noticed_at_the_next_start(serve: Serve) -> None:
    service = serve(engine_stage("--setsid-child"))
    service.start()
    (seen,) = service.survey().replicas
    service.kill()
    os.kill(seen.status.owner_pid, signal.SIGKILL)
    service.start()
    assert service.ready() != [seen.status.id]
    until(lambda: len(service.pids()) == 3, "engine, its child and the door, nothing else")
    assert [e.replica for e in read(service.state.events, kinds=("leftover",))] == [seen.status.id]


def test_a_changed_spec_replaces_the_replica_only_when_the_new_one_is_ready(serve: Serve) -> None:
    service = serve(engine_stage("--name", "old"))
    service.start()
    (old,) = service.ready()
    service.kill()
    toml = engine_stage("--name", "new", "--listen-after", "1")
    service.write(toml)
    service.start()
    names = set()

    def replaced() -> bool:
        status, body, _ = service.chat()
        assert status == 200
        names.add(json.loads(body)["name"])
        return names == {"old", "new"} and old not in [
            s.status.id for s in service.survey().replicas
        ]

    until(replaced, "the new one serves, the old one is gone, nothing was refused")


def test_a_new_spec_that_cannot_start_leaves_the_old_replica_serving(serve: Serve) -> None:
    service = serve(engine_stage("--name", "old"))
    service.start()
    service.kill()
    service.write(engine_stage("--name", "new", "--exit-at-once", "1"))
    service.start(wait=False)
    until(lambda: any(e.kind == "circuit_open" for e in read(service.state.events)))
    status, body, _ = service.chat()
    assert status == 200 and json.loads(body)["name"] == "old"


def test_a_stage_that_the_file_no_longer_has_is_ended(serve: Serve) -> None:
    service = serve(engine_stage() + engine_stage(name="extra"))
    service.start()
    (extra,) = service.ready("extra")
    service.kill()
    service.write(engine_stage())
    service.start()
    until(lambda: extra not in [s.status.id for s in service.survey().replicas], "it is ended")
    assert service.chat()[0] == 200


def test_another_address_is_told_not_forced(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    old_port = service.port
    service.kill()
    service.file.write_text(service.file.read_text().replace(str(old_port), str(old_port + 1)))
    service.start()
    service.wait_said(f"goes on listening on 127.0.0.1:{old_port}")
    assert service.chat()[0] == 200


@pytest.mark.parametrize("what", ["events", "tables", "status", "record"])
def test_a_leftover_that_cannot_be_read_does_not_stop_serving(serve: Serve, what: str) -> None:
    service = serve(engine_stage())
    service.start()
    (replica,) = service.ready()
    service.kill()
    path = {
        "events": service.state.events,
        "tables": service.state.tables,
        "status": service.state.status,
        "record": service.state.replica_file(replica),
    }[what]
    for suffix in ("-wal", "-shm"):  # they could mend the file that they belong to
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(b"\x00garbage{" * 1000)
    service.start()
    assert service.chat()[0] == 200
    until(lambda: len(service.ready()) == 1, "one replica, whoever started it")
    if what == "events":
        assert list(path.parent.glob("events.sqlite.corrupt-*"))


def test_an_event_log_of_an_older_version_is_kept_aside(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    service.kill()
    with sqlite3.connect(service.state.events) as db:
        db.execute("UPDATE meta SET value='0' WHERE key='schema_version'")
    db.close()
    service.start()
    assert list(Path(service.state.root).glob("events.sqlite.v0-*"))
    service.wait_said("kept aside")
    assert service.chat()[0] == 200


def test_tables_of_a_later_version_are_surpassed(serve: Serve) -> None:
    """Another control has published since: ours must not be refused for ever."""
    service = serve(engine_stage())
    service.start()
    service.kill()
    service.state.tables.unlink()
    service.start()
    (replica,) = service.ready()
    os.kill(service.pid_of(replica), signal.SIGKILL)
    until(lambda: service.ready() not in ([], [replica]), "it is replaced")
    until(lambda: service.chat()[0] == 200, "the door has learned of it")


def test_a_holder_that_is_silent_for_a_while_is_adopted_late_and_holds_nobody_up(
    serve: Serve,
) -> None:
    service = serve(engine_stage(replicas="2"))
    service.start()
    pids = set(service.pids())
    seen = service.survey().replicas[0]
    service.kill()
    os.kill(seen.status.owner_pid, signal.SIGSTOP)
    try:
        service.start(wait=False)
        until(
            lambda: any(e.kind == "adopted" for e in read(service.state.events)),
            "the other one is adopted",
        )
        assert service.chat()[0] == 200
    finally:
        os.kill(seen.status.owner_pid, signal.SIGCONT)
    until(
        lambda: (
            {e.replica for e in read(service.state.events, kinds=("adopted",))} >= {seen.status.id}
        ),
        "the silent one is adopted too",
    )
    until(lambda: len(service.ready()) == 2, "two are ready")
    assert pids & set(service.pids())


def test_a_door_with_other_flags_takes_over_without_cutting_a_stream(serve: Serve) -> None:
    service = serve(engine_stage("--interval", "0.1", max_concurrency="4"))
    service.start()
    before = service.survey().door
    with service.stream(max_tokens=60) as response:
        first = response.readline()
        service.kill()
        toml = service.file.read_text()
        log = '[serve.access_log]\nfile = "access.log"\n'
        service.file.write_text(toml.replace("[stage.chat]", f"{log}[stage.chat]"))
        service.start()
        after = service.survey().door
        assert before and after and after.pid != before.pid
        assert service.chat()[0] == 200
        received = tokens(first + response.read())
    assert received[-1] == "[DONE]" and len(received) == 61
    until(lambda: len(service.pids()) == 2, "the older door has gone: engine and one door")
    service.kill()
    service.start()
    door = service.survey().door
    assert door and door.pid == after.pid, "what runs already is not upgraded again"
