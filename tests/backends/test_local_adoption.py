"""Whoever comes next finds what lives, what has ended, and what is left of what was killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from backend_lab import Lab, is_gone, line_with, texts, until

from preroll.backends.adoption import is_holder_alive
from preroll.backends.base import Adoption, HolderRefusedError
from preroll.backends.local import LocalBackend
from preroll.errors import InputError, UnavailableError


def test_twenty_are_adopted_at_once_and_one_that_hangs_does_not_hold_them_up(lab: Lab) -> None:
    async def start(backend: LocalBackend) -> int:
        specs = [lab.shell("echo up; sleep 1000", id=f"r{n}") for n in range(20)]
        started = await asyncio.gather(*(backend.start(spec) for spec in specs))
        return started[7].owner_pid

    hanging = lab.run(start)
    os.kill(hanging, signal.SIGSTOP)

    async def body(backend: LocalBackend) -> None:
        adopted = await backend.adopt()
        assert {status.id for status in adopted.running} == {f"r{n}" for n in range(20)} - {"r7"}
        assert set(adopted.unusable) == {"r7"} and "silent" in adopted.unusable["r7"]
        assert not adopted.leftovers
        os.kill(hanging, signal.SIGCONT)
        assert len((await backend.adopt()).running) == 20
        assert len(await backend.list()) == 20
        await asyncio.gather(*(backend.kill(f"r{n}") for n in range(20)))

    lab.run(body)


def test_what_has_ended_meanwhile_is_found_with_its_lines(lab: Lab) -> None:
    lab.run(lambda backend: backend.start(lab.shell("echo last words; exit 9")))

    async def body(backend: LocalBackend) -> None:
        await backend.wait("p")
        (status,) = (await backend.adopt()).exited
        assert status.exit is not None and status.exit.code == 9
        assert await texts(backend) == ["last words"]
        await backend.release("p")
        await until(lambda: is_gone(status.owner_pid), "end of the holder")
        (ended,) = (await backend.adopt()).ended
        assert ended.exit == status.exit and ended.lines == 1
        assert (await backend.wait("p")).exit == status.exit

    lab.run(body)


def remove(folder: str) -> bool:
    """Whether it is gone; another holder that starts may have removed it."""
    with suppress(OSError):
        Path(folder).rmdir()
    return not Path(folder).exists()


def test_another_boot_has_left_nothing_that_runs(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        start = await backend.start(lab.spec("sleep", "1000"))
        await backend.start(lab.spec("sleep", "1000", id="other"))
        os.kill(start.owner_pid, signal.SIGKILL)
        await until(lambda: is_gone(start.pid or 0), "end of the direct child")
        # As after a boot: the pids in the file belong to somebody else by now.
        other = await backend.status("other")
        groups = lab.saved_status()["cgroups"]
        saved = lab.saved_status() | {"boot_id": "another", "pid": other.pid, "cgroups": []}
        (lab.root / "holders/p/status.json").write_text(json.dumps(saved))
        adopted = await backend.adopt()
        assert [one.id for one in adopted.ended] == ["p"]
        assert "started anew" in (adopted.ended[0].error or "")
        assert not adopted.leftovers and [one.id for one in adopted.running] == ["other"]
        for group in groups:  # a real boot has no groups of the one before
            await until(lambda group=group: remove(group), "removal of the group")

    lab.run(body)


def test_a_pid_that_is_used_anew_is_not_hit(lab: Lab) -> None:
    """The dead holder's child had the pid of a process that is somebody else's now."""

    async def body(backend: LocalBackend) -> None:
        start = await backend.start(lab.shell("sleep 1000"))
        os.kill(start.owner_pid, signal.SIGKILL)
        await until(lambda: is_gone(start.pid or 0), "end of the direct child")
        bystander = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
        saved = lab.saved_status() | {"pid": bystander.pid, "pid_start_ticks": 2**60}
        (lab.root / "holders/p/status.json").write_text(json.dumps(saved))
        adopted = await backend.adopt()
        assert [one.id for one in adopted.leftovers] == ["p"]
        assert bystander.returncode is None and not is_gone(bystander.pid)
        bystander.kill()
        await bystander.wait()

    lab.run(body)


def test_the_same_id_in_another_state_directory_is_not_ours(lab: Lab) -> None:
    other = Lab(Path(tempfile.mkdtemp(prefix="p-")))
    try:
        theirs = other.run(lambda backend: backend.start(other.shell("sleep 1000")))
        ours = lab.run(lambda backend: backend.start(lab.shell("sleep 1000")))
        os.kill(ours.owner_pid, signal.SIGKILL)
        lab.run(lambda backend: until(lambda: is_gone(ours.pid or 0)))
        adopted = lab.run(lambda backend: backend.adopt())
        assert [one.id for one in adopted.leftovers] == ["p"]
        assert not is_gone(theirs.pid or 0)
    finally:
        other.clean()


def test_a_folder_that_is_tidied_away_meanwhile_is_no_error(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = lab.root / "holders" / "gone"
    monkeypatch.setattr("preroll.backends.adoption._folders", lambda holders: [gone])
    adopted = lab.run(lambda backend: backend.adopt())
    assert adopted == Adoption()


def test_a_holder_that_begins_while_its_folder_is_looked_at_is_not_turned_away(lab: Lab) -> None:
    """Whether a holder lives is seen by trying its lock, which is then taken for an instant."""
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            is_holder_alive(lab.root / "holders" / "p")

    async def body(backend: LocalBackend) -> None:
        lookers = [threading.Thread(target=look) for _ in range(2)]
        for looker in lookers:
            looker.start()
        try:
            for _ in range(10):
                await backend.start(lab.shell("sleep 1000"))
                await backend.kill("p")
                await backend.release("p")
        finally:
            done.set()
            for looker in lookers:
                looker.join()

    (lab.root / "holders" / "p").mkdir(parents=True)
    lab.run(body)


def test_an_id_names_one_process(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        first = await backend.start(lab.shell("echo first; sleep 1000"))
        await line_with(backend, "first")
        with pytest.raises(InputError, match="another holder runs"):
            await backend.start(lab.shell("echo second"))
        spec = json.loads((lab.root / "holders/p/spec.json").read_text())
        assert spec["argv"][-1] == "echo first; sleep 1000"
        assert (await backend.status("p")).pid == first.pid

    lab.run(body)


def test_a_start_that_is_under_way_is_not_taken_for_a_leftover(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        async def adopt_often() -> None:
            while not done.is_set():
                assert not (await backend.adopt()).leftovers
                await asyncio.sleep(0)

        done = asyncio.Event()
        adopting = asyncio.create_task(adopt_often())
        for n in range(10):
            status = await backend.start(lab.shell("sleep 1000", id=f"r{n}"))
            assert not status.has_exited
        done.set()
        await adopting
        assert len((await backend.adopt()).running) == 10

    lab.run(body)


def serve_once(path: Path, reply: dict[str, Any]) -> threading.Thread:
    """A holder of another version: answers one request."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener, listener.accept()[0] as peer, peer.makefile("rw") as file:
            file.readline()
            file.write(json.dumps(reply) + "\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("version", [0, 2, None])
def test_a_holder_of_another_version_is_named_and_left_alone(lab: Lab, version: object) -> None:
    async def body(backend: LocalBackend) -> None:
        backend.folder("old").mkdir(parents=True)
        reply = {"ok": True, "status": {"version": version, "id": "old"}}
        thread = serve_once(backend.client("old").socket, reply)
        adopted = await backend.adopt()
        thread.join(10)
        assert set(adopted.unusable) == {"old"}
        assert f"version {version!r}" in adopted.unusable["old"]

    lab.run(body)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"version": 1}', b'{"version": 0}'])
def test_a_status_file_that_nobody_can_read_is_no_obstacle(lab: Lab, content: bytes) -> None:
    async def body(backend: LocalBackend) -> None:
        backend.folder("p").mkdir(parents=True)
        (backend.folder("p") / "status.json").write_bytes(content)
        adopted = await backend.adopt()
        assert not adopted.running and not adopted.unusable
        await backend.start(lab.shell("exit 0"))
        assert (await backend.wait("p")).has_exited

    lab.run(body)


def test_what_is_unknown_is_unavailable_and_what_runs_is_not_released(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        with pytest.raises(UnavailableError, match="nobody"):
            await backend.status("nobody")
        with pytest.raises(UnavailableError, match="nobody"):
            await backend.stop("nobody")
        await backend.start(lab.spec("sleep", "1000"))
        with pytest.raises(HolderRefusedError, match="not ended"):
            await backend.release("p")
        with pytest.raises(HolderRefusedError, match="signal 99"):
            await backend.signal("p", 99)
        await backend.signal("p", signal.SIGINT)
        status = await backend.wait("p")
        assert status.exit is not None and status.exit.signal == signal.SIGINT
        with pytest.raises(HolderRefusedError, match="has ended"):
            await backend.signal("p", signal.SIGINT)

    lab.run(body)
