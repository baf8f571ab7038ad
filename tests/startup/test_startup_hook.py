"""The import hook inside real interpreters: what it records, and what it must leave alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from preroll.instruments.startup import hook
from preroll.instruments.startup.hook import PythonProcess


def interpreters() -> list[str]:
    """This interpreter and one of every other supported version that runs here."""
    found = [sys.executable]
    for minor in (11, 12, 13):
        if sys.version_info[:2] == (3, minor):
            continue
        name = f"python3.{minor}"
        kept = (Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/{name}")
        for program in (shutil.which(name), *map(str, sorted(kept))):
            if program is not None and runs(program):
                found.append(program)
                break
    return found


def runs(program: str) -> bool:
    return not subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode


class Recorded:
    """Runs code under the hook, with modules of its own beside it."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder = folder
        self.program = program
        self.modules = folder / "modules"
        self.modules.mkdir()

    def module(self, name: str, text: str) -> None:
        path = self.modules / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(
        self, code: str, *flags: str, status: int = 0
    ) -> tuple[list[PythonProcess], subprocess.CompletedProcess[str]]:
        where = self.folder / "hook"
        shutil.rmtree(where, ignore_errors=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        env = hook.install(where, {**env, "PYTHONPATH": str(self.modules)})
        done = subprocess.run(
            [self.program, *flags, "-c", code], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        return hook.read(where), done


@pytest.fixture(params=interpreters(), ids=lambda program: Path(program).name)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    return Recorded(tmp_path, request.param)


def asked(process: PythonProcess) -> set[tuple[str, str]]:
    return {(one.importer, one.name) for one in process.requests}


def test_a_load_belongs_to_what_the_thread_was_loading(recorded: Recorded) -> None:
    recorded.module("outer", "import inner")
    recorded.module("inner", "x = sum(range(100000))")
    (process,), _ = recorded.run("import outer")
    loads = {load.name: load for load in process.loads}
    assert loads["inner"].importer == "outer"
    assert loads["outer"].importer == "__main__"
    outer, inner = loads["outer"], loads["inner"]
    assert outer.start_ns <= inner.start_ns < (inner.end_ns or 0) <= (outer.end_ns or 0)
    assert outer.cpu_ns >= inner.cpu_ns > 0
    assert inner.read_bytes >= 0
    assert inner.file == str(recorded.modules / "inner.py")


def test_a_request_that_sys_modules_answers_is_recorded_in_every_form(recorded: Recorded) -> None:
    recorded.module("package/__init__", "")
    recorded.module("package/part", "")
    recorded.module("package/other", "from . import part\nfrom .part import __name__ as n")
    recorded.module("plain", "import package.part")
    recorded.module("named", "from package import part")
    recorded.module("called", "import importlib; importlib.import_module('package.part')")
    recorded.module("deep", "def f():\n    import package.part\nf()")
    (process,), _ = recorded.run("import package.part, plain, named, called, deep, package.other")
    for importer in ("plain", "named", "called", "deep", "package.other"):
        assert (importer, "package.part") in asked(process), importer


def test_a_function_that_imports_while_another_module_loads_is_billed_to_that_module(
    recorded: Recorded,
) -> None:
    recorded.module("helper", "def f():\n    import lazy")
    recorded.module("lazy", "")
    recorded.module("loading", "import helper; helper.f()")
    (process,), _ = recorded.run("import helper, loading")
    lazy = next(load for load in process.loads if load.name == "lazy")
    assert lazy.importer == "loading"


def test_outside_any_load_the_asking_module_is_the_importer(recorded: Recorded) -> None:
    recorded.module("helper", "import importlib\ndef f():\n    importlib.import_module('lazy')")
    recorded.module("lazy", "")
    (process,), _ = recorded.run("import helper; helper.f()")
    lazy = next(load for load in process.loads if load.name == "lazy")
    assert lazy.importer == "helper"


def test_threads_have_stacks_of_their_own(recorded: Recorded) -> None:
    recorded.module("slow", "import time; time.sleep(0.3)")
    recorded.module("aside", "")
    code = """
import threading, time
thread = threading.Thread(target=lambda: __import__("slow"))
thread.start()
time.sleep(0.1)
import aside
thread.join()
"""
    (process,), _ = recorded.run(code)
    aside = next(load for load in process.loads if load.name == "aside")
    assert aside.importer == "__main__"


def test_children_record_into_files_of_their_own(recorded: Recorded) -> None:
    recorded.module("early", "")
    recorded.module("late", "")
    code = """
import early, os, subprocess, sys
pid = os.fork()
if not pid:
    import late
    os._exit(0)
os.waitpid(pid, 0)
subprocess.run([sys.executable, "-c", "import late"], check=True)
"""
    processes, _ = recorded.run(code)
    assert len({process.pid for process in processes}) == 3
    names = [{load.name for load in process.loads} for process in processes]
    assert "early" in names[0] and "late" not in names[0]
    assert "late" in names[1] and "early" not in names[1]
    assert "late" in names[2]


def test_the_users_own_sitecustomize_still_runs_and_is_the_one_in_sys_modules(
    recorded: Recorded,
) -> None:
    recorded.module("sitecustomize", "mine = 1\nprint('mine ran')")
    _, done = recorded.run("import sitecustomize; print(sitecustomize.mine)")
    assert done.stdout.split("\n")[:2] == ["mine ran", "1"]


def test_an_error_in_the_users_sitecustomize_is_reported_as_ever(recorded: Recorded) -> None:
    recorded.module("sitecustomize", "raise RuntimeError('broken on purpose')")
    _, done = recorded.run("print('on')")
    assert "broken on purpose" in done.stderr
    assert done.stdout == "on\n"


def test_the_program_sees_its_own_path_and_no_module_of_ours(recorded: Recorded) -> None:
    code = (
        "import sys; print([p for p in sys.path if 'hook' in p], 'preroll_injected' in sys.modules)"
    )
    _, done = recorded.run(code)
    assert done.stdout == "[] False\n"


def test_a_failed_import_is_the_cost_of_who_asked_and_raises_as_ever(recorded: Recorded) -> None:
    recorded.module("asks", "try:\n    import nothing_of_that_name\nexcept ImportError: pass")
    (process,), _ = recorded.run("import asks")
    failed = next(load for load in process.loads if load.name == "nothing_of_that_name")
    assert failed.has_failed and failed.importer == "asks"
    recorded.module("broken", "1 / 0")
    _, done = recorded.run("import broken", status=1)
    assert "ZeroDivisionError" in done.stderr
    assert "injected" not in done.stderr


def test_warnings_point_at_the_importer_and_not_at_the_hook(recorded: Recorded) -> None:
    recorded.module(
        "old", "import warnings; warnings.warn('old', DeprecationWarning, stacklevel=2)"
    )
    recorded.module("user", "import old")
    _, done = recorded.run("import user", "-W", "default")
    assert "user.py:1: DeprecationWarning" in done.stderr


def test_a_program_that_closes_every_descriptor_loses_nothing_and_gets_nothing(
    recorded: Recorded, tmp_path: Path
) -> None:
    recorded.module("after", "")
    target = tmp_path / "target"
    code = f"""
import os
os.closerange(3, 1024)
files = [os.open({str(target)!r}, os.O_CREAT | os.O_WRONLY) for _ in range(8)]
import after
"""
    (process,), _ = recorded.run(code)
    assert any(load.name == "after" for load in process.loads)
    assert target.read_bytes() == b""


def test_a_process_killed_in_the_middle_of_a_load_has_recorded_it(recorded: Recorded) -> None:
    recorded.module("fatal", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    (process,), _ = recorded.run("import fatal", status=-9)
    fatal = next(load for load in process.loads if load.name == "fatal")
    assert fatal.end_ns is None


def test_an_interpreter_that_ignores_the_environment_is_left_alone(recorded: Recorded) -> None:
    processes, _ = recorded.run("print(1)", "-I")
    assert processes == []


def test_what_cannot_be_written_plainly_loses_nothing_beside_it(recorded: Recorded) -> None:
    recorded.module("plain", "")
    recorded.module("odd", "")
    recorded.module(
        "asks",
        """
import importlib
class Name(str): pass
class Names(tuple): pass
importlib.import_module(Name("odd"))
__import__("plain", globals(), None, Names((Name("x"),)), 0)
__import__("plain", None, None, [Name("y"), 1.5], 0)
try:
    __import__("plain", 7, None, (), 1)
except TypeError as error:
    assert "globals" in str(error), error
import late
""",
    )
    recorded.module("late", "")
    (process,), _ = recorded.run("import asks")
    assert {("asks", "odd"), ("asks", "plain"), ("asks", "late")} <= asked(process)


def test_a_fork_in_the_middle_of_a_load_keeps_what_is_being_loaded(recorded: Recorded) -> None:
    recorded.module("outer", "import inner\nimport after")
    recorded.module(
        "inner", "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nelse: import child"
    )
    recorded.module("child", "")
    recorded.module("after", "")
    (parent, child), _ = recorded.run("import outer")
    assert {"outer", "inner", "after"} <= {load.name for load in parent.loads}
    importers = {load.name: load.importer for load in child.loads}
    assert importers["child"] == "inner"
    assert importers["after"] == "outer"


def test_more_than_one_file_holds_is_read_as_one(recorded: Recorded) -> None:
    recorded.module("many", "for n in range(60000):\n    import sys, os\nimport last")
    recorded.module("last", "")
    (process,), _ = recorded.run("import many")
    assert len(list((recorded.folder / "hook" / hook.RECORDS).iterdir())) > 1
    assert sum(one.name == "os" for one in process.requests) >= 60000
    assert process.loads[-1].name == "last" and process.loads[-1].importer == "many"
