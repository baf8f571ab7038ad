"""A disk that is full or read-only: serving goes on, says so, and is healthy soon after relief."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, engine_stage, until

from preroll.events import read


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB of its own; skipped where this user may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "preroll-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def service(small_disk: Path) -> Iterator[Served]:
    """The state directory is on the small disk, the app file too."""
    service = Served(small_disk, engine_stage(replicas="2"))
    yield service
    service.end()


def fill(folder: Path) -> Path:
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    return path


def crash_one(service: Served) -> str:
    victim = service.ready()[0]
    os.kill(service.pid_of(victim), signal.SIGKILL)
    return victim


def test_on_a_full_disk_serving_goes_on_and_recovers(service: Served, small_disk: Path) -> None:
    service.start()
    ballast = fill(small_disk)
    victim = crash_one(service)
    until(
        lambda: any("cannot write events" in line for line in service.output),
        "the full disk is said",
    )
    for _ in range(10):
        assert service.chat()[0] == 200, "the replica that is left serves"
    ballast.unlink()
    until(lambda: any("written again" in line for line in service.output), "and the relief too")
    until(lambda: len(service.ready()) == 2 and victim not in service.ready(), "it is replaced")
    assert service.chat()[0] == 200
    service.stop()
    failed = [e for e in read(service.state.events, kinds=("state",)) if e.data["to"] == "failed"]
    assert victim in [e.replica for e in failed], "what happened meanwhile was not lost"


def test_serving_from_a_read_only_directory_is_refused_with_the_way_out(
    service: Served, small_disk: Path
) -> None:
    remount(small_disk, "ro")
    try:
        service.start(wait=False)
        assert service.process is not None and service.process.wait(60) == 2
        until(lambda: any("--state DIR" in line for line in service.output))
    finally:
        remount(small_disk, "rw")


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)
