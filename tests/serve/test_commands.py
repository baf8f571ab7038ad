"""`ps`, `top`, `logs` beside a running service, and which service they mean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from served import PREROLL, Served, engine_stage, until

from preroll.cli.place import state_of
from preroll.cli.progress import curl_line
from preroll.cli.top import Rates
from preroll.config import parse_app
from preroll.errors import InputError
from preroll.serve.statedir import Lock, StateDir

Serve = Callable[[str], Served]


def test_top_shows_queue_and_wait_before_anything_else(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    place = ("--state", str(service.state.root))
    answer = subprocess.run(
        [*PREROLL, "top", *place, "--rounds", "2", "--interval", "0.1"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200"},
        check=True,
    )
    head = next(line for line in answer.stdout.splitlines() if "queued" in line)
    columns = [head.index(name) for name in ("queued", "oldest wait", "in flight")]
    assert columns == sorted(columns)
    assert service.ready()[0] in answer.stdout


def test_logs_follow_an_old_and_a_new_replica(serve: Serve) -> None:
    service = serve(engine_stage("--say", "hello"))
    service.start()
    words = [*PREROLL, "logs", "chat", "-f", "--state", str(service.state.root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        seen: list[str] = []
        assert process.stdout is not None
        stream = process.stdout
        reader = threading.Thread(target=lambda: seen.extend(stream))
        reader.start()
        until(lambda: any("hello" in line for line in seen), "the first one's line")
        (first,) = service.ready()
        os.kill(service.pid_of(first), signal.SIGKILL)
        until(
            lambda: len({line.split()[1] for line in seen if "hello" in line}) == 2,
            "the line of the one that came instead",
        )
        process.send_signal(signal.SIGINT)
        reader.join(30)


def test_logs_of_something_unknown_say_so(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    answer = service.command("logs", "nobody", "--state", str(service.state.root))
    assert answer.returncode == 2 and "'nobody'" in answer.stderr


def test_logs_of_a_replica_that_is_gone_are_still_there(serve: Serve) -> None:
    service = serve(engine_stage("--say", "last will"))
    service.start()
    (replica,) = service.ready()
    service.stop()
    answer = service.command("logs", replica, "--state", str(service.state.root))
    assert "last will" in answer.stdout


def test_a_command_means_the_only_app_that_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="nothing has been served"):
        state_of(None, None)
    states = [StateDir(tmp_path / "preroll" / name) for name in ("a", "b")]
    for state in states:
        state.prepare()
    with pytest.raises(InputError, match="a, b"):
        state_of(None, None)
    lock = Lock(states[1])
    assert state_of(None, None) == states[1]
    lock.release()
    assert state_of("a", None) == states[0]
    assert state_of("some/where/b.toml", None) == states[1]
    assert state_of("a", tmp_path) == StateDir(tmp_path)


def test_ps_outside_of_any_service_names_the_way_out(tmp_path: Path) -> None:
    words = [*PREROLL, "ps", "--state", str(tmp_path)]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2 and "--state DIR" in answer.stderr


def test_ps_shows_where_numbers_come_from(serve: Serve) -> None:
    service = serve(engine_stage())
    service.start()
    answer = service.command("ps", "--state", str(service.state.root), "--json")
    stage = json.loads(answer.stdout)["stages"]["chat"]
    assert stage["source"] == "1 starts seen here" and stage["start_p50_s"] > 0
    assert stage["queued"] == 0 and stage["wanted"] == 1


def test_rates_are_differences_and_never_negative() -> None:
    rates = Rates()
    assert rates.of("chat", "arrivals", 10, 1.0) is None
    assert rates.of("chat", "arrivals", 16, 3.0) == 3.0
    assert rates.of("chat", "arrivals", 2, 4.0) is None, "the door was started anew"
    assert rates.of("chat", "arrivals", 4, 5.0) == 2.0
    assert rates.of("chat", "refused", None, 5.0) is None


def test_the_curl_line_fits_the_stage() -> None:
    chat = '[stage.a]\nengine = "vllm"\nmodel = "org/m"\n'
    (line,) = curl_line(parse_app(chat), "http://h:1")
    assert "http://h:1/v1/chat/completions" in line and '"model":"org/m"' in line
    other = '[stage.a]\nengine = "command"\ncommand = ["x", "{port}"]\n'
    route = '[[route]]\npath = "/echo/*"\nstage = "a"\n'
    assert curl_line(parse_app(other + route), "http://h:1") == ["curl http://h:1/echo/"]
