"""The command line as a whole: help without weight, near misses, exit statuses."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from preroll.cli import main


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from preroll.cli.main import run; run(['--help']);"
        "heavy = {'pydantic', 'cyclopts', 'rich', 'asyncio', 'numpy', 'tree_sitter', 'psutil'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Usage: preroll COMMAND")


def test_every_listed_command_exists_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in main.COMMANDS:
        assert command.group in main.GROUPS
        module = importlib.import_module(command.module)
        assert module.main(["--help"]) == 0
        assert f"preroll {command.name}" in capsys.readouterr().out


def test_an_unknown_command_names_the_likely_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["chekc"]) == 2
    assert "did you mean 'check'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("check", "preroll check: Parameter APP_FILE requires an argument (preroll check --help)"),
        ("stop --bogus", "preroll stop: Unknown option: --bogus (preroll stop --help)"),
        ("probe ingress", "preroll probe ingress: "),
        ("profile --bogus 3 -- true", "preroll profile: Unknown option: --bogus"),
        ("load http://127.0.0.1:1 --rate fast", "preroll load: Invalid value for --rate"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_command(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(said) and error.count("\n") == 1


def test_a_reader_that_leaves_is_no_traceback() -> None:
    code = "from preroll.cli.main import main; import sys; sys.argv = ['preroll', '--help']; main()"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert error == b""
