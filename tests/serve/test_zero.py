"""Zero and back: demand starts, idleness stops, schedules pre-warm, deadlines are kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from served import Served, engine_stage, until

from preroll.events import read

Serve = Callable[[str], Served]


def scale(text: str) -> str:
    return engine_stage(scale="{ min = 0, max = 1, " + text + " }")


def test_nothing_runs_at_zero_until_the_first_request_which_is_held_and_answered(
    serve: Serve,
) -> None:
    service = serve(scale('idle_timeout = "1h"'))
    service.start()
    assert service.survey().replicas == ()
    status, _, headers = service.chat()
    assert status == 200 and headers["x-preroll-replica"].startswith("chat-1-")
    reasons = [e.data["reason"] for e in read(service.state.events, kinds=("wanted",))]
    assert any("request waits" in reason for reason in reasons)


def test_many_first_requests_start_one_replica_only(serve: Serve) -> None:
    service = serve(scale('idle_timeout = "1h"'))
    service.start()
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(service.chat()[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 8
    assert len(service.starts(1)) == 1


def test_an_idle_replica_goes_and_comes_back(serve: Serve) -> None:
    service = serve(scale('idle_timeout = "500ms"'))
    service.start()
    assert service.chat()[0] == 200
    until(lambda: service.survey().replicas == (), "it has gone to zero")
    assert service.chat()[0] == 200
    assert len(service.starts(2)) == 2


def test_a_replica_with_a_running_stream_is_not_idle(serve: Serve) -> None:
    service = serve(
        engine_stage("--interval", "0.2", scale='{ min = 0, max = 1, idle_timeout = "300ms" }')
    )
    service.start()
    with service.stream(max_tokens=15) as response:
        assert b"[DONE]" in response.read()
    assert len(service.starts(1)) == 1


def test_auto_is_the_measured_cost_of_a_start(serve: Serve) -> None:
    service = serve(scale('idle_timeout = "auto"'))
    service.start()
    assert service.chat()[0] == 200
    until(lambda: service.survey().replicas == (), "a start of well under a second is soon paid")


def test_a_request_whose_deadline_is_before_the_start_is_refused_with_the_time_it_takes(
    serve: Serve,
) -> None:
    service = serve(
        engine_stage("--listen-after", "2", scale='{ min = 0, max = 1, idle_timeout = "100ms" }')
    )
    service.start()
    assert service.chat()[0] == 200  # measured now: two seconds and some
    until(lambda: service.survey().replicas == (), "it has gone to zero")
    begun = time.monotonic()
    status, _, headers = service.chat({"x-preroll-deadline-ms": "500"})
    assert status in (503, 504) and time.monotonic() - begun < 2.0
    assert float(headers["x-preroll-expected-wait"]) > 0.5
    assert service.chat({"x-preroll-deadline-ms": "60000"})[0] == 200


def test_a_schedule_that_is_on_prewarms(serve: Serve) -> None:
    now = datetime.now(UTC)
    service = serve(scale(f'idle_timeout = "100ms", prewarm = "daily {now:%H:%M} UTC"'))
    service.start()
    until(lambda: len(service.ready()) == 1, "it is ready before any request")
    time.sleep(1.5)  # longer than the idle time-out and a tick: the schedule holds it
    assert len(service.ready()) == 1


def test_replicas_scale_with_concurrency(serve: Serve) -> None:
    service = serve(
        engine_stage(
            "--interval",
            "0.2",
            scale="{ min = 1, max = 3, target_concurrency = 1 }",
            max_concurrency="8",
        )
    )
    service.start()
    threads = [threading.Thread(target=lambda: drain(service)) for _ in range(6)]
    for thread in threads:
        thread.start()
    until(lambda: len(service.ready()) == 3, "three replicas for six streams")
    for thread in threads:
        thread.join()


def drain(service: Served) -> None:
    with service.stream(max_tokens=40) as response:
        response.read()
