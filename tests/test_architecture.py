"""What ARCHITECTURE.md says of the tree, checked: arrows point one way, files fit in a head."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python/preroll"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60

# layer -> the layers that it must never import
FORBIDDEN = {
    "core.py": {"*"},
    "errors.py": {"*"},
    "engines": {"backends", "control", "serve", "instruments", "planning", "cli"},
    "backends": {"engines", "control", "serve", "instruments", "planning", "cli"},
    "state": {"backends", "control", "serve", "instruments", "planning", "cli"},
    "control": {"serve", "instruments", "planning", "cli"},
    "planning": {"serve", "instruments", "backends", "engines", "cli", "config"},
    "instruments": {"serve", "cli"},
    "serve": {"instruments", "planning", "cli"},
}


def imported(path: Path) -> set[str]:
    """First names below `preroll` that a file imports, type-checking blocks included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        names |= {m.split(".")[1] for m in modules if m.startswith("preroll.")}
    return names


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_imports_point_one_way(layer: str) -> None:
    for path in SOURCES:
        if path.relative_to(PACKAGE).parts[0] == layer:
            wrong = imported(path)
            if "*" not in FORBIDDEN[layer]:
                wrong &= FORBIDDEN[layer]
            assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_no_crate_but_py_knows_python() -> None:
    for manifest in ROOT.glob("crates/*/Cargo.toml"):
        assert manifest.parent.name == "py" or "pyo3" not in manifest.read_text(), manifest


def test_files_fit_in_a_head() -> None:
    rust = sorted(ROOT.glob("crates/*/src/**/*.rs"))
    for path in [*SOURCES, *rust]:
        length = len(path.read_text().splitlines())
        assert length <= MAX_FILE_LINES, f"{path.relative_to(ROOT)}: {length} lines"


def test_functions_fit_on_a_screen() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= MAX_FUNCTION_LINES, f"{path.relative_to(ROOT)}: {node.name}"


def test_every_command_of_the_table_can_be_imported() -> None:
    from importlib import import_module

    from preroll.cli.main import COMMANDS

    for command in COMMANDS:
        assert callable(import_module(command.module).main), command.name
