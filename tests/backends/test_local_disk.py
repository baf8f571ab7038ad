"""Full and read-only disks cost log lines, never the process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_lab import Lab, line_with, until_status

from preroll.backends.local import LocalBackend
from preroll.errors import InputError


def mount(place: Path, *options: str) -> None:
    command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


def unmount(place: Path) -> None:
    subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


@pytest.fixture
def small(lab: Lab) -> Iterator[Path]:
    """The holders' directory on a disk of 256 KiB."""
    place = lab.root / "holders"
    place.mkdir()
    mount(place, "-o", "size=256k,mode=700")
    yield place
    lab.clean()
    unmount(place)


def test_a_full_disk_costs_lines_and_is_forgotten_when_there_is_room(lab: Lab, small: Path) -> None:
    code = "seq 100000; while ! test -e go; do echo waiting; sleep 0.05; done; echo finished"

    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell(f"cd {lab.root}; {code}", log_bytes=1 << 20))
        status = await until_status(backend, lambda status: status.log_error is not None)
        assert "No space left" in (status.log_error or "") and status.log_dropped_lines > 0
        assert (await line_with(backend, "100000")).n == 100_000
        (small / "p/log").write_bytes(b"")
        status = await until_status(backend, lambda status: status.log_error is None)
        (lab.root / "go").touch()
        status = await backend.wait("p")
        assert status.exit is not None and status.exit.code == 0
        lines = (small / "p/log").read_text().splitlines()
        assert lines[-1].endswith("out finished")
        assert all(line.split(" ")[1] in ("out", "out+") for line in lines if line)
        assert lab.saved_status()["state"] == "exited"

    lab.run(body)


def test_a_read_only_state_directory_is_named(lab: Lab) -> None:
    place = lab.root / "holders"
    place.mkdir()
    mount(place, "-o", "ro")
    try:

        async def body(backend: LocalBackend) -> None:
            with pytest.raises(InputError, match="Read-only file system"):
                await backend.start(lab.shell("true"))

        lab.run(body)
    finally:
        unmount(place)


def test_a_directory_that_becomes_read_only_costs_the_log_alone(lab: Lab) -> None:
    """As when a kernel remounts a disk with errors: the process runs on, its lines are kept."""
    folder = lab.root / "holders/p"
    folder.mkdir(parents=True)

    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell("echo before; read x < /dev/null; sleep 0.3; echo after"))
        mount(folder, "-o", "ro")
        status = await backend.wait("p")
        assert status.exit is not None and status.exit.code == 0
        assert "Read-only file system" in (status.log_error or "")
        assert [line.text async for line in backend.lines("p")] == ["before", "after"]

    try:
        lab.run(body)
    finally:
        unmount(folder)
