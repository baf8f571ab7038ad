"""The worker in an environment that is not Preroll's: an older Python, nothing but a server."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import preroll

PACKAGE = Path(preroll.__file__).parent
SOURCES = [*(PACKAGE / "worker").glob("*.py"), PACKAGE / "__init__.py", PACKAGE / "errors.py"]
ALLOWED = {"uvicorn", "uvloop", "httptools", "websockets"}
# Of the standard library, newer than Python 3.10.
TOO_NEW = {"tomllib", "StrEnum", "Self", "assert_never", "UTC", "TaskGroup", "Runner", "timeout"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_workers_source_is_python_3_10(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            names = [alias.name for alias in node.names]
            top = node.module.split(".")[0]
        elif isinstance(node, ast.Import):
            top = node.names[0].name.split(".")[0]
        elif isinstance(node, ast.Attribute):
            assert not (node.attr in TOO_NEW and isinstance(node.value, ast.Name)), node.attr
            continue
        else:
            assert not isinstance(node, getattr(ast, "TryStar", ()))
            continue
        assert top in {*sys.stdlib_module_names, *ALLOWED, "preroll"}, f"{path.name}: {top}"
        assert not TOO_NEW & {top, *names}, f"{path.name}: {names}"


def test_a_stage_imports_neither_pydantic_nor_the_command_line_nor_the_extension() -> None:
    code = (
        "import sys, preroll.worker.process, preroll.worker.calls\n"
        "from preroll import *\n"
        "print(*sorted({n.split('.')[0] for n in sys.modules} | "
        "{n for n in sys.modules if n.startswith('preroll.')}))"
    )
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{code}",
    ]
    found = set(subprocess.check_output(command, text=True).split())
    assert not found & {"pydantic", "cyclopts", "rich", "psutil", "numpy", "preroll._core"}
    ours = {name.split(".")[1] for name in found if name.startswith("preroll.")}
    assert ours == {"worker", "errors"}


def test_importing_preroll_imports_nothing_else_of_it() -> None:
    code = "import sys, preroll; print(*[n for n in sys.modules if n.startswith('preroll.')])"
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True).split() == []


def test_every_public_name_can_be_imported() -> None:
    for name in preroll.__all__:
        assert getattr(preroll, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Stag'"):
        preroll.Stag  # noqa: B018
