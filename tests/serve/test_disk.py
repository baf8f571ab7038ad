"""A disk that is full or read-only: serving goes on, says so, and is healthy soon after relief."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from served import Served, engine_stage, until

from preroll.events import read

RECOVERY_S = 15.0
"""Within 5 s on a machine of its own (docs/performance.md); this one may be busy."""


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
def real_disk(tmp_path: Path) -> Iterator[RealDisk]:
    """An ext4 of its own in a file; skipped where this user may not mount one."""
    disk = RealDisk(tmp_path / "image", tmp_path / "disk")
    disk.make()
    yield disk
    subprocess.run(["umount", "-l", str(disk.folder)], check=True)


@dataclass(frozen=True)
class RealDisk:
    image: Path
    folder: Path

    def make(self) -> None:
        self.folder.mkdir()
        with self.image.open("wb") as file:
            file.truncate(16 << 20)
        try:
            subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True, capture_output=True)
            self.mount()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"an ext4 of its own cannot be had here: {error}")

    def mount(self) -> None:
        options = "loop,errors=remount-ro"
        words = ["mount", "-t", "ext4", "-o", options, str(self.image), str(self.folder)]
        subprocess.run(words, check=True, capture_output=True)

    def fail(self) -> None:
        """The kernel finds it broken: read-only from here on, also for open files."""
        subprocess.run(["mount", "-o", "remount,abort", str(self.folder)], check=False)

    def replace(self) -> None:
        """What an operator does: another disk with its files, under the running processes."""
        other = self.image.with_suffix(".other")
        shutil.copy(self.image, other)
        subprocess.run(["umount", "-l", str(self.folder)], check=True)
        subprocess.run(["e2fsck", "-p", "-f", str(other)], check=False, capture_output=True)
        replace(self, image=other).mount()


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


def test_on_a_disk_that_turns_read_only_serving_goes_on_and_recovers(real_disk: RealDisk) -> None:
    # So long a path that its sockets lie elsewhere: those on the disk would be gone with it.
    folder = real_disk.folder / ("p" * 80)
    folder.mkdir()
    service = Served(folder, engine_stage(replicas="2"))
    try:
        service.start()
        until(lambda: len(service.ready()) == 2, "two are ready")
        real_disk.fail()
        with pytest.raises(OSError, match="Read-only"):
            (folder / "probe").touch()
        victim = crash_one(service)
        until(
            lambda: any("cannot write events" in line for line in service.output),
            "the disk is named",
        )
        for _ in range(10):
            assert service.chat()[0] == 200, "the replica that is left serves"
        real_disk.replace()
        until(
            lambda: len(service.ready()) == 2 and victim not in service.ready(),
            "it is replaced soon",
            RECOVERY_S,
        )
        assert service.chat()[0] == 200
        assert service.stop() == 0
        failed = [e for e in read(service.state.events, kinds=("state",)) if e.replica == victim]
        assert failed[-1].data["to"] == "failed", "what happened meanwhile was not lost"
    finally:
        service.end()


def test_serving_from_a_read_only_directory_is_refused_with_the_way_out(
    service: Served, small_disk: Path
) -> None:
    remount(small_disk, "ro")
    try:
        service.start(wait=False)
        assert service.wait() == 2
        assert any("--state DIR" in line for line in service.output)
    finally:
        remount(small_disk, "rw")


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)
