"""A stage on a Python of its own: it sees the package `preroll`, and nothing else of ours."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pipelines import ask
from served import Served

pytestmark = pytest.mark.timeout(120)

# What uvicorn itself needs; all of it is Python.
SERVER = ("uvicorn", "h11", "click")
SOURCE = """
import importlib.util
import sys

import preroll


class Where(preroll.Stage):
    async def __call__(self, body: dict):
        ours = ("pydantic", "psutil", "cyclopts", "rich", "numpy", "uvloop")
        return {
            "prefix": sys.prefix, "package": preroll.__file__,
            "seen": [name for name in ours if importlib.util.find_spec(name)],
            "shared": "only_here" in sys.modules,
        }
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real virtual environment with uvicorn and nothing else."""
    root = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
    (site,) = root.glob("lib/python3*/site-packages")
    for name in SERVER:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, site / name)
    (site / "only_here.py").write_text("")
    return root


def stage(python: Path, more: str = "") -> str:
    return (
        '[stage.where]\nengine = "python"\nclass = "app:Where"\n'
        f"python = {json.dumps(str(python))}\n{more}"
    )


@pytest.mark.parametrize("imports", ["", 'imports = ["only_here"]\n'])
def test_a_stage_runs_in_its_own_environment_alone(
    serve: Callable[..., Served], environment: Path, imports: str
) -> None:
    service = serve(stage(environment / "bin/python", imports), SOURCE)
    service.start()
    status, body, _ = ask(service, "/x", {})
    assert status == 200, body
    answer = json.loads(body)
    assert answer["prefix"] == str(environment)
    assert answer["seen"] == [], "nothing that Preroll has installed for itself"
    assert "site-packages" not in answer["package"]
    assert answer["shared"] == bool(imports)
    assert service.starts(1)[0].is_forked == bool(imports)


def test_a_missing_server_is_said_with_the_command_that_installs_it(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    service = serve(stage(bare / "bin/python"), SOURCE)
    checked = service.command("check", str(service.file))
    command = f"{bare}/bin/python -m pip install uvicorn"
    assert "'uvicorn' is not installed" in checked.stderr and command in checked.stderr
    served = service.command("serve", str(service.file), "--state", str(service.state.root))
    assert served.returncode == 2 and command in served.stderr


def test_an_environment_that_is_not_there_is_said_with_how_to_make_it(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    service = serve(stage(tmp_path / "none/bin/python"), SOURCE)
    checked = service.command("check", str(service.file))
    assert f"python3 -m venv {tmp_path}/none" in checked.stderr
