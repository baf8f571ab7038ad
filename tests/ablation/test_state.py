"""The page cache as it really is, and when a run counts as cold or warm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from preroll.errors import InputError
from preroll.instruments.ablation import files, pages
from preroll.instruments.ablation.reads import Reads, reads_of
from preroll.instruments.ablation.state import Cache, Drop, Evidence, Keeper

MIB = 1 << 20


def has_a_device(folder: Path) -> bool:
    """Whether files of the folder can leave memory at all (a tmpfs keeps them)."""
    path = folder / "probe"
    path.write_bytes(b"x" * MIB)
    pages.drop([str(path)])
    return pages.resident_bytes(path) == 0


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    if not has_a_device(tmp_path):
        pytest.skip("the temporary folder is in memory")
    return tmp_path


def test_residency_is_what_was_read_and_nothing_once_dropped(disk: Path) -> None:
    path = disk / "data"
    path.write_bytes(os.urandom(3 * MIB + 5))
    path.read_bytes()
    assert pages.resident_bytes(path) == 3 * MIB + pages.PAGE
    pages.drop([str(path)])
    assert pages.resident_bytes(path) == 0
    assert pages.resident_bytes(disk / "none") is None


def test_reads_of_a_process_and_its_children_are_counted(disk: Path) -> None:
    path = disk / "data"
    path.write_bytes(os.urandom(4 * MIB))
    pages.drop([str(path)])
    code = (
        "import subprocess, sys\n"
        f"subprocess.run(['cat', {str(path)!r}], stdout=subprocess.DEVNULL, check=True)\n"
        "print('done', flush=True); sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        found = reads_of([process.pid])
        process.communicate()
    assert 4 * MIB <= found.read_bytes < 64 * MIB
    assert 0 < found.cpu_s < 10
    assert reads_of([process.pid]) == Reads(0, 0)


def test_files_are_found_open_beside_and_in_the_python_that_runs(tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("x")
    with (tmp_path / "open").open("w") as file:
        file.write("y")
        seen = files.open_files([os.getpid()])
    assert str(tmp_path / "open") in seen
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "module.py").write_text("")
    found = files.candidates({str(tmp_path / "open")}, ["pkg"], tmp_path, "")
    expected = {"open", "beside", "pkg/module.py"}
    assert {str(tmp_path / name) for name in expected} <= set(found)
    python = files.candidates(seen, [], tmp_path, "")
    assert os.path.realpath(os.__file__) in python


def test_a_cold_run_is_believed_only_with_reads_like_those_before() -> None:
    keeper = Keeper(Cache.COLD)

    def judged(arm: str, resident: int, read: int) -> str | None:
        return keeper.why_not_proved(arm, Evidence(resident, Reads(read, 0), 1.0))

    assert judged("control", 0, 100 * MIB) is None
    assert judged("control", 0, 99 * MIB) is None
    assert "read 50.0 MiB" in (judged("control", 0, 50 * MIB) or "")
    assert judged("variant", 0, 50 * MIB) is None  # another arm may read less
    assert "nothing" in (judged("variant", 0, 0) or "")
    assert "could not be dropped" in (judged("control", 40 * MIB, 100 * MIB) or "")


def test_a_warm_run_is_believed_only_without_reads_worth_a_hundredth_of_it() -> None:
    def judged(cache: Cache, read: int, total_s: float) -> str:
        return Keeper(cache).why_not_proved("x", Evidence(None, Reads(read, 1), total_s)) or ""

    assert judged(Cache.WARM, 4096, 0.01) == ""
    assert "read 3.0 MiB" in judged(Cache.WARM, 3 * MIB, 1.0)
    assert judged(Cache.WARM, 3 * MIB, 30.0) == ""
    assert "read 60.0 MiB" in judged(Cache.WARM, 60 * MIB, 30.0)
    assert judged(Cache.AS_IS, 900 * MIB, 1.0) == ""


def test_only_root_may_drop_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="--drop files"):
        Keeper(Cache.COLD, Drop.ALL)


def test_preparing_drops_what_was_learnt(disk: Path) -> None:
    for name in ("used", "unused"):
        (disk / name).write_bytes(b"x" * MIB)
    keeper = Keeper(Cache.COLD)
    keeper.learn_candidates({str(disk / "used")}, [], disk, {})
    keeper.prepare()
    (disk / "used").read_bytes()
    keeper.learn_files()
    assert keeper.num_files == 1
    assert keeper.prepare() == 0
    assert pages.resident_bytes(disk / "used") == 0
