"""The real vLLM (its CPU build) as a stage: `make test-engines` installs it and runs these."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, tokens, until

from preroll.serve.http import request

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".cache/vllm/bin/vllm"
MODEL = ROOT / ".cache/smollm2-hf"
START_TIMEOUT_S = 400.0

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PROGRAM.exists(), reason="vLLM is not installed: make test-engines"),
]

APP = f"""
[stage.chat]
engine = "vllm"
model = "{MODEL}"
models = ["smollm2"]
args = ["--enforce-eager", "--max-num-seqs=4", "--max-model-len=2048"]
env = {{ VLLM_CPU_KVCACHE_SPACE = "1", HF_HUB_OFFLINE = "1" }}
start_timeout = "{START_TIMEOUT_S:.0f}s"
"""


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("vllm"), APP)
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    served.start(wait=False, env={"PATH": path})
    try:
        until(lambda: served.ready(), "vLLM ready", START_TIMEOUT_S)
        yield served
    finally:
        served.end()


def message(text: str, **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": text}]
    return {"model": "smollm2", "messages": messages, "temperature": 0, **more}


def test_its_start_is_billed_from_its_own_lines_and_adds_up(vllm: Served) -> None:
    done = vllm.command("starts", "--state", str(vllm.state.root), "--json")
    start = json.loads(done.stdout.splitlines()[0])
    waits = {wait for wait, *_ in start["phases"]}
    assert {"init", "load", "warm"} <= waits
    total = start["ready_ns"] - start["spawned_ns"]
    assert sum(end - begin for *_, begin, end in start["phases"]) == total


def test_it_answers_and_streams_through_the_door(vllm: Served) -> None:
    status, body, headers = vllm.chat(**message("The capital of France is?", max_tokens=16))
    assert status == 200, body
    assert json.loads(body)["choices"][0]["message"]["content"]
    assert headers["x-preroll-replica"].startswith("chat-")
    with vllm.stream(**message("Count to ten.", max_tokens=24)) as response:
        raw = response.read()
    assert response.status == 200
    assert raw.rstrip().endswith(b"data: [DONE]")
    assert len(re.findall(rb"data: \{", raw)) > 3


def running(vllm: Served) -> float:
    (seen,) = [s for s in vllm.survey().replicas if s.state == "ready"]
    assert seen.record is not None
    text = request(seen.record.address, "GET", "/metrics").body.decode()
    found = re.search(r"^vllm:num_requests_running\{.*\} ([\d.]+)", text, re.M)
    assert found is not None
    return float(found[1])


def test_a_client_that_leaves_frees_its_slot_in_the_engine(vllm: Served) -> None:
    with vllm.stream(**message("Write a very long story.", max_tokens=1500)) as response:
        response.read(200)
        assert until(lambda: running(vllm) == 1, "the engine runs it")
    assert until(lambda: running(vllm) == 0, "the engine stopped it")


def test_killed_control_adopts_it_without_a_start_and_the_stream_goes_on(vllm: Served) -> None:
    before = vllm.ready()
    pid = vllm.pid_of(before[0])
    got: list[bytes] = []

    def read() -> None:
        with vllm.stream(**message("Tell me about the sea.", max_tokens=200)) as response:
            got.append(response.read())

    reader = threading.Thread(target=read)
    reader.start()
    vllm.kill()
    vllm.start(env={"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"})
    reader.join()
    assert tokens(got[0])[-1] == "[DONE]"
    assert vllm.ready() == before
    assert vllm.pid_of(before[0]) == pid


def test_its_whole_tree_goes_when_its_api_process_is_killed(vllm: Served) -> None:
    """EngineCore and workers of a killed API process would hold the memory for minutes."""
    (replica,) = vllm.ready()
    tree = set(vllm.pids())
    os.kill(vllm.pid_of(replica), signal.SIGKILL)

    def replaced() -> bool:
        ready = vllm.ready()
        return bool(ready) and replica not in ready

    until(replaced, "a new replica", START_TIMEOUT_S)
    door = vllm.survey().door
    doors = {door.pid} if door else set()
    left = {pid for pid in tree & set(vllm.pids()) if pid not in doors}
    assert not left, f"left of the killed tree: {left}"
