"""`preroll serve` end to end: real door, real holders, engines with good and bad manners."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from served import ENGINE, Served, engine_stage, tokens, until

from preroll.core import ReplicaState
from preroll.events import iter_starts, read

Serve = Callable[[str], Served]
WARM = '[{ path = "/v1/chat/completions", body = { messages = [] } }]'


def test_a_stage_is_started_warmed_served_and_stopped_without_a_trace(serve: Serve) -> None:
    service = serve(engine_stage(warmup=WARM))
    service.start()
    service.wait_said("curl http://127.0.0.1")
    with service.stream() as response:
        assert response.status == 200
        assert tokens(response.read()) == ["0 ", "1 ", "2 ", "3 ", "4 ", "[DONE]"]
    (start,) = service.starts(1)
    assert sum(p.end_ns - p.start_ns for p in start.phases) == start.ready_ns - start.spawned_ns
    assert {p.wait for p in start.phases} == {"init", "warm"}
    assert service.stop() == 0
    assert service.pids() == [] and service.holder_pids() == []
    assert [p.name for p in service.state.run.glob("*.sock")] == []


def test_every_transition_is_an_event_in_order(serve: Serve) -> None:
    service = serve(engine_stage(warmup=WARM))
    service.start()
    service.stop()
    moves = [e.data["to"] for e in read(service.state.events, kinds=("state",))]
    assert moves == [
        ReplicaState.PLACED,
        ReplicaState.BOOTING,
        ReplicaState.WARMING,
        ReplicaState.READY,
        ReplicaState.STOPPED,
    ]
    kinds = [e.kind for e in read(service.state.events)]
    assert kinds[0] == "serve_started" and kinds[-1] == "serve_ended"


def test_a_stage_on_a_port_is_served_too(serve: Serve) -> None:
    toml = engine_stage().replace("unix:{socket}", "tcp:127.0.0.1:{port}")
    service = serve(toml)
    service.start()
    assert service.chat()[0] == 200


def test_a_server_that_already_runs_is_put_behind_the_door(serve: Serve) -> None:
    inner = serve(engine_stage(name="inner"))
    inner.start()
    outer = serve(
        f'[stage.outer]\nengine = "url"\nurl = "http://127.0.0.1:{inner.port}"\n'
        'health = "/healthz"\n'
    )
    outer.start()
    assert until(lambda: outer.chat()[0] == 200, "the server is reached")
    outer.stop()
    assert inner.chat()[0] == 200


def test_a_replica_that_crashes_is_restarted_and_the_others_go_on(serve: Serve) -> None:
    service = serve(engine_stage(replicas="2"))
    service.start()
    before = set(until(lambda: len(service.ready()) == 2 and service.ready(), "two ready"))
    victim = sorted(before)[0]
    os.kill(service.pid_of(victim), signal.SIGKILL)
    after = until(
        lambda: victim not in service.ready() and len(service.ready()) == 2 and service.ready(),
        "the replica is replaced",
    )
    assert len(before & set(after)) == 1
    assert service.chat()[0] == 200
    failed = [e for e in read(service.state.events, kinds=("state",)) if e.data["to"] == "failed"]
    assert "killed by SIGKILL" in failed[0].data["cause"]


def test_a_crash_loop_opens_the_circuit_and_shows_the_real_cause_last(serve: Serve) -> None:
    service = serve(
        engine_stage("--exit-at-once", "1", "--last-words", "ImportError: libfoo.so.2: no file")
    )
    service.start(wait=False)
    until(
        lambda: any(e.kind == "circuit_open" for e in read(service.state.events)),
        "the circuit opens",
    )
    (event,) = read(service.state.events, kinds=("circuit_open",))
    assert event.data["cause"].splitlines()[-1].strip() == "ImportError: libfoo.so.2: no file"
    assert "exited with code 1" in event.data["cause"]
    answer = service.command("ps", "--state", str(service.state.root), "--json")
    stage = json.loads(answer.stdout)["stages"]["chat"]
    assert stage["circuit_open"] and stage["last_failure"].endswith("no file")
    status, body, headers = service.chat()
    assert status == 503 and "retry-after" in headers
    assert b"ImportError: libfoo.so.2: no file" in body, "a client is told why"


@pytest.mark.parametrize("manner", ["--health-only", "--fail-traffic"])
def test_an_engine_that_answers_health_and_not_traffic_is_never_ready(
    serve: Serve, manner: str
) -> None:
    service = serve(engine_stage(manner, warmup=WARM, start_timeout='"2s"'))
    service.start(wait=False)
    failed = until(
        lambda: [
            e.data["cause"]
            for e in read(service.state.events, kinds=("state",))
            if e.data["to"] == "failed"
        ],
        "it is found out",
    )
    assert "healthy, but its warm-up failed" in failed[0]
    assert list(iter_starts(service.state.events)) == []


def test_an_engine_that_listens_late_is_waited_for(serve: Serve) -> None:
    service = serve(engine_stage("--listen-after", "1.0", "--healthy-after", "1.5"))
    service.start()
    (start,) = service.starts(1)
    assert start.total_s >= 1.5
    assert service.chat()[0] == 200


def test_an_engine_that_never_gets_healthy_is_ended_with_the_reason(serve: Serve) -> None:
    service = serve(engine_stage("--healthy-after", "1000", start_timeout='"1s"'))
    service.start(wait=False)
    cause = until(
        lambda: [
            e.data["cause"]
            for e in read(service.state.events, kinds=("state",))
            if e.data["to"] == "failed"
        ]
    )[0]
    assert "not healthy 1 s after its start" in cause and "503" in cause


def test_becoming_ready_and_dying_is_seen_and_counted(serve: Serve) -> None:
    service = serve(engine_stage("--die-after", "0.5"))
    service.start(wait=False)
    until(
        lambda: sum(e.kind == "start" for e in read(service.state.events)) >= 3,
        "it is started again and again",
    )
    causes = [
        e.data["cause"]
        for e in read(service.state.events, kinds=("state",))
        if e.data["to"] == "failed"
    ]
    assert "exited with code 3" in causes[0]
    assert causes[0].endswith("RuntimeError: no such device")


def test_what_ignores_sigterm_or_leaves_its_session_is_gone_after_stop(serve: Serve) -> None:
    service = serve(engine_stage("--ignore-sigterm", "--setsid-child", stop_grace='"500ms"'))
    service.file.write_text(service.file.read_text().replace('stop_grace = "5s"\n', ""))
    service.start()
    until(lambda: len(service.pids()) >= 3, "engine, child and door run")
    assert service.stop() == 0
    assert service.pids() == []


def test_a_port_that_is_taken_is_named_and_nothing_is_left(serve: Serve) -> None:
    service = serve(engine_stage())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", service.port))
        taken.listen()
        service.start(wait=False)
        assert service.wait() == 2
    said = "\n".join(service.output)
    assert str(service.port) in said and "in use" in said.lower()
    assert service.pids() == [] and service.holder_pids() == []
    service.start()
    assert service.chat()[0] == 200


def test_a_second_serve_on_one_state_directory_is_refused_by_name(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    second = service.command("serve", str(service.file), "--state", str(service.state.root))
    assert second.returncode == 4
    assert service.process is not None and str(service.process.pid) in second.stderr
    assert service.chat()[0] == 200


def test_a_state_directory_that_cannot_be_written_is_refused(serve: Serve, tmp_path: Path) -> None:
    service = serve(engine_stage())
    (tmp_path / "file").write_text("")
    answer = service.command("serve", str(service.file), "--state", str(tmp_path / "file" / "x"))
    assert answer.returncode == 2 and "--state DIR" in answer.stderr


def test_ps_logs_and_stop_work_without_control(serve: Serve) -> None:
    service = serve(engine_stage("--say", "hello from the engine"))
    service.start()
    service.kill()
    place = ("--state", str(service.state.root))
    seen = json.loads(service.command("ps", *place, "--json").stdout)
    assert seen["control_pid"] is None and seen["door_pid"]
    (replica,) = seen["replicas"]
    assert replica["state"] == "ready" and replica["memory_bytes"] > 0
    assert replica["age_s"] >= replica["start_s"] > 0
    assert "hello from the engine" in service.command("logs", "chat", *place).stdout
    assert replica["id"] in service.command("ps", *place).stdout
    stopped = service.command("stop", *place)
    assert stopped.returncode == 0, stopped.stderr
    assert service.pids() == [] and service.holder_pids() == []


def test_stop_ends_a_running_control_too(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    assert service.command("stop", "--state", str(service.state.root)).returncode == 0
    assert service.process is not None and service.process.wait(10) == 0
    assert service.pids() == []


def test_stop_lets_a_running_stream_finish(serve: Serve) -> None:
    service = serve(engine_stage("--interval", "0.1"))
    service.start()
    with service.stream(max_tokens=15) as response:
        first = response.readline()
        assert service.process is not None
        service.process.send_signal(signal.SIGTERM)
        rest = tokens(first + response.read())
    assert rest[-1] == "[DONE]" and len(rest) == 16
    assert service.wait() == 0


def test_leave_lets_everything_run_on(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start("--leave")
    pids = service.pids()
    assert service.stop() == 0
    assert service.pids() == pids
    assert service.chat()[0] == 200


def test_detach_comes_back_when_ready(serve: Serve) -> None:
    service = serve(engine_stage())
    place = ("--state", str(service.state.root))
    answer = service.command("serve", str(service.file), *place, "--detach")
    assert answer.returncode == 0, answer.stderr
    assert service.chat()[0] == 200
    assert service.command("stop", *place).returncode == 0


def test_detach_tells_why_it_did_not_start(serve: Serve) -> None:
    service = serve(engine_stage())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", service.port))
        taken.listen()
        place = ("--state", str(service.state.root))
        answer = service.command("serve", str(service.file), *place, "--detach")
    assert answer.returncode == 2 and str(service.port) in answer.stderr


def test_systemd_is_told_when_it_is_ready(serve: Serve, tmp_path: Path) -> None:
    service = serve(engine_stage())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        service.start(env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert sock.recv(100) == b"READY=1"
        service.stop()
        assert sock.recv(100) == b"STOPPING=1"


def test_one_program_is_served_without_a_file(serve: Serve) -> None:
    service = serve("")
    listen = ("--listen", f"127.0.0.1:{service.port}", "--state", str(service.state.root))
    words = ["python3", "-I", "-S", str(ENGINE), "--listen", "unix:{socket}"]
    answer = service.command("serve", "command", *listen, "--detach", "--", *words)
    assert answer.returncode == 0, answer.stderr
    assert service.chat()[0] == 200


def test_a_long_state_path_still_has_sockets(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 60) / ("e" * 60)
    folder.mkdir(parents=True)
    service = Served(folder, engine_stage())
    try:
        service.start()
        assert service.chat()[0] == 200
    finally:
        service.end()


def test_starts_on_one_machine_without_devices_run_at_the_same_time(serve: Serve) -> None:
    service = serve(engine_stage("--listen-after", "1.0", replicas="3"))
    begun = time.monotonic()
    service.start()
    spans = [(s.spawned_ns, s.ready_ns) for s in service.starts(3)]
    assert len(spans) == 3
    assert max(s for s, _ in spans) < min(e for _, e in spans), time.monotonic() - begun


def test_leaving_during_a_warm_up_that_hangs_does_not_wait_for_it(serve: Serve) -> None:
    service = serve(engine_stage("--health-only", warmup=WARM, start_timeout='"10m"'))
    service.start("--leave", wait=False)
    service.wait_said("warming")
    assert service.stop() == 0
    assert len(service.pids()) == 2, "door and engine live on"


def test_stopping_during_a_start_leaves_nothing(serve: Serve) -> None:
    service = serve(engine_stage("--listen-after", "600", replicas="3"))
    service.start(wait=False)
    service.wait_said("booting")
    assert service.stop() == 0
    assert service.pids() == [] and service.holder_pids() == []


def test_a_replica_that_no_longer_answers_is_found_out_and_replaced(serve: Serve) -> None:
    """It is stopped, not dead: only the door's ejection and the probes can tell."""
    service = serve(engine_stage(queue='{ max_wait = "60s" }', health_timeout='"2s"'))
    service.start()
    (stuck,) = service.ready()
    pid = service.pid_of(stuck)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: service.ready() not in ([], [stuck]), "another one serves", 110)
    assert service.chat()[0] == 200
    failed = [e for e in read(service.state.events, kinds=("state",)) if e.data["to"] == "failed"]
    assert "health probes failed in a row" in failed[0].data["cause"]
