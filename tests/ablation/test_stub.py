"""The stub of a module, inside a real interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from preroll.errors import InputError
from preroll.instruments.ablation import change
from preroll.instruments.ablation.change import Change, Kind

USES = """
import abc, asyncio, enum, gone, gone.deep.inside as inside
from gone import *
from gone.other import Base, helper, GoneError

@gone.decorate
def plain():
    return 41

@gone.jit(static=True)
def configured():
    return 42

class Mine(Base, abc.ABC):
    def __init__(self, size):
        super().__init__()
        self.size = size

class Both(dict, inside.Mixin):
    pass

try:
    raise GoneError("said")
except GoneError as error:
    assert str(error) == "said"
with gone.context() as it:
    assert not it and len(it) == 0 and list(it) == [] and int(it) == 0 and it + 1 is it
async def waits():
    async with gone.session() as session:
        await session.get()
asyncio.run(waits())
assert plain() == 41 and configured() == 42
assert Mine(3).size == 3 and isinstance(Mine(3), Base)
assert not isinstance(3, gone.Tensor) and Both(a=1) == {"a": 1}
assert not gone.cuda.is_available() and not gone.FLAG and not gone.VERSION >= "2"
annotation: gone.Tensor | None = None
alias = gone.Generic[int]
assert gone.__version__ == "0.0.0" and not hasattr(gone, "__wrapped__")
assert list(gone.items) == [] and "x" not in gone.names
"""


def interpreter(
    folder: Path, module: str, code: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    words = (sys.executable, *flags, "-c", code)
    applied = change.variant(Change(Kind.MODULE, module), words, dict(os.environ), folder)
    return subprocess.run(
        applied.argv, env=dict(applied.env), capture_output=True, text=True, timeout=60
    )


def test_a_stub_answers_to_what_an_importing_module_does(tmp_path: Path) -> None:
    ran = interpreter(tmp_path / "run", "gone", USES)
    assert (ran.returncode, ran.stderr) == (0, "")
    record = (tmp_path / "run" / "stubbed").read_text()
    assert {line.split()[1] for line in record.splitlines()} >= {"gone", "gone.deep.inside"}


def test_a_module_that_exists_is_not_loaded(tmp_path: Path) -> None:
    ran = interpreter(tmp_path / "run", "json", "import json; print(json.dumps([1]) or 'stub')")
    assert ran.stdout == "stub\n"


def test_a_stubs_type_can_be_a_field_of_a_pydantic_model(tmp_path: Path) -> None:
    code = (
        "import pydantic, gone\n"
        "class Mine(pydantic.BaseModel):\n"
        "    part: gone.Part | None = None\n"
        "    parts: list[gone.Part] = []\n"
        "print(Mine(part=3, parts=[4]).model_dump())\n"
    )
    ran = interpreter(tmp_path / "run", "gone", code)
    assert ran.stdout == "{'part': 3, 'parts': [4]}\n", ran.stderr


def test_one_module_below_a_package_can_be_taken_away(tmp_path: Path) -> None:
    code = "import json.decoder, json.tool; print(json.loads('[1]'), bool(json.tool.main))"
    assert interpreter(tmp_path / "run", "json.tool", code).stdout == "[1] False\n"


def test_the_sitecustomize_that_it_hides_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('own')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    assert interpreter(tmp_path / "run", "gone", "import gone; print('ran')").stdout == "own\nran\n"


def test_children_that_are_pythons_get_the_stub_too(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import gone'], check=True)"
    )
    ran = interpreter(tmp_path / "run", "gone", code)
    assert ran.returncode == 0
    assert (tmp_path / "run" / "stubbed").exists()


def test_a_python_that_ignores_its_path_leaves_no_record(tmp_path: Path) -> None:
    ran = interpreter(tmp_path / "run", "gone", "import gone", "-I")
    assert "ModuleNotFoundError" in ran.stderr
    assert not (tmp_path / "run" / "stubbed").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "given: none"),
        ({Kind.ENV: "A=1", Kind.ARGS: "--x"}, "--env and --args"),
        ({Kind.ENV: "1=2"}, "NAME=VALUE"),
        ({Kind.MODULE: "not a module"}, "dotted name"),
        ({Kind.ARGS: "'open"}, "No closing quotation"),
        ({Kind.CMD: " "}, "at least one word"),
    ],
)
def test_what_is_no_single_change_is_refused(given: dict[Kind, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        change.one_change({kind: given.get(kind) for kind in Kind})


def test_each_kind_of_change_changes_one_thing(tmp_path: Path) -> None:
    env = {"KEPT": "1", "GONE": "2"}

    def made(kind: Kind, text: str) -> change.Applied:
        return change.variant(Change(kind, text), ("program", "x"), env, tmp_path)

    assert made(Kind.ENV, "NEW=a=b").env == {**env, "NEW": "a=b"}
    assert made(Kind.ENV, "GONE").env == {"KEPT": "1"}
    assert made(Kind.ARGS, "--a '1 2'").argv == ("program", "x", "--a", "1 2")
    assert made(Kind.CMD, "other y").argv == ("other", "y")
    assert made(Kind.ENV, "NEW=1").argv == ("program", "x")
