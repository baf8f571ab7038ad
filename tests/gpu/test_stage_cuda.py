"""A stage on a real GPU under `preroll serve`: needs torch with CUDA; skipped without."""

from __future__ import annotations

import http.client
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, until

from preroll.events import read as events

CUDA = """
import sys, torch
sys.exit(0 if torch.cuda.is_available() else 1)
"""


def has_gpu() -> bool:
    """Asked in another process: a CUDA context in this one would be in every child's way."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("uvicorn") is None:
        return False
    return subprocess.run([sys.executable, "-c", CUDA], capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_gpu(), reason="no GPU with torch and uvicorn here"),
]

SOURCE = """
import os

import torch

import preroll


class Matrix(preroll.Stage):
    def load(self):
        self.weights = torch.eye(1024, device="cuda")

    def warm(self):
        (self.weights @ self.weights).sum().item()

    def __call__(self, body: dict):
        if body.get("oom"):
            try:
                torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
            except torch.cuda.OutOfMemoryError as error:
                raise preroll.StageFatal(f"CUDA out of memory: {str(error)[:80]}") from error
        return {
            "sum": (self.weights * body.get("times", 1)).sum().item(),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "devices": torch.cuda.device_count(),
            "pid": os.getpid(),
        }

    def stream(self, body: dict):
        state = torch.ones(1024, device="cuda")
        for _ in range(body["count"]):
            state = self.weights @ state * 2
            yield {"value": state[0].item()}
"""
STAGE = """
[stage.matrix]
engine = "python"
class = "app:Matrix"
gpus = 1
start_timeout = "3m"
"""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Makes services of an app file and its source; nothing of them is left after."""
    made: list[Served] = []

    def make(more: str = "", **files: str) -> Served:
        (tmp_path / "app.py").write_text(SOURCE)
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        made.append(Served(tmp_path, STAGE + more))
        made[-1].start(wait=False)
        until(lambda: made[-1].ready("matrix"), "the stage is ready", 240)
        return made[-1]

    yield make
    for service in made:
        service.end()


def ask(service: Served, body: dict[str, Any]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    try:
        connection.request("POST", "/x", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def recorded(service: Served, kind: str) -> list[dict[str, Any]]:
    return [dict(event.data) for event in events(service.state.events, kinds=(kind,))]


def test_a_model_on_the_device_is_loaded_answers_and_streams(serve: Callable[..., Served]) -> None:
    service = serve()
    status, body = ask(service, {"times": 3})
    answer = json.loads(body)
    assert (status, answer["sum"]) == (200, 3 * 1024)
    assert answer["visible"] is not None and answer["devices"] == 1, "one device is passed on"
    status, body = ask(service, {"stream": True, "count": 5})
    values = [json.loads(line[6:])["value"] for line in body.decode().split("\n\n")[:5]]
    assert (status, values) == (200, [2.0, 4.0, 8.0, 16.0, 32.0])
    waits = {phase.wait for phase in service.starts(1)[0].phases}
    assert {"init", "load", "warm"} <= {str(wait) for wait in waits}


def test_out_of_device_memory_restarts_the_replica_with_the_reason(
    serve: Callable[..., Served],
) -> None:
    service = serve()
    (first,) = service.ready("matrix")
    status, body = ask(service, {"oom": True})
    assert status == 503 and b"CUDA out of memory" in body
    until(lambda: [r for r in service.ready("matrix") if r != first], "another replica", 240)
    assert ask(service, {})[0] == 200
    said = json.dumps(service.survey().control["stages"]["matrix"])
    assert "CUDA out of memory" in said


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_guard_forks_after_importing_torch_and_refuses_once_cuda_is_initialised(
    serve: Callable[..., Served], is_clean: bool
) -> None:
    touch = "" if is_clean else "torch.zeros(1, device='cuda')\n"
    service = serve('imports = ["heavy"]\n', heavy=f"import torch\n{touch}")
    assert ask(service, {"times": 2})[0] == 200
    refused = recorded(service, "fork_refused")
    assert service.starts(1)[0].is_forked == is_clean, refused
    if not is_clean:
        assert "CUDA is initialised" in refused[0]["reason"]
        assert "/dev/nvidia" in refused[0]["reason"]
