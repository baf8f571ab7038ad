"""Listening sockets outlive the process behind them; control sockets fit and are private."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_lab import Lab, is_gone, line_with, until, until_status

from preroll.backends import sockets
from preroll.backends.base import Listen, ProcessSpec, ProcessState, Restart
from preroll.backends.local import LocalBackend
from preroll.errors import InputError

SERVER = """
import os, signal, socket, sys, threading
assert int(os.environ["LISTEN_PID"]) == os.getpid(), os.environ["LISTEN_PID"]
names = os.environ["LISTEN_FDNAMES"].split(":")
assert len(names) == int(os.environ["LISTEN_FDS"])
listeners = [socket.socket(fileno=3 + n) for n in range(len(names))]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
ending = threading.Event()
def serve(listener, name):
    listener.settimeout(0.02)
    while not ending.is_set():
        try:
            peer, _ = listener.accept()
        except TimeoutError:
            continue
        with peer:
            peer.sendall(f"{sys.argv[1]} {name} {os.getpid()}".encode())
threads = [threading.Thread(target=serve, args=pair) for pair in zip(listeners, names)]
for thread in threads:
    thread.start()
print("serving", flush=True)
signal.sigwait([signal.SIGTERM])
ending.set()  # what has been accepted is answered: a retired generation finishes
for thread in threads:
    thread.join()
"""


def server(version: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", SERVER, version)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def listening(lab: Lab) -> tuple[ProcessSpec, int, Path]:
    port, path = free_port(), lab.root / "public.sock"
    listen = (Listen("public", f"tcp:127.0.0.1:{port}"), Listen("internal", f"unix:{path}"))
    spec = lab.spec(*server("old"), listen=listen, restart=Restart(0.01, 0.1))
    return spec, port, path


async def ask(port: int) -> list[str]:
    """What the server says of itself; a refused connection is an error."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return (await reader.read()).decode().split()
    finally:
        writer.close()


def test_sockets_are_passed_as_systemd_passes_them(
    lab: Lab, listening: tuple[ProcessSpec, int, Path]
) -> None:
    spec, port, path = listening

    async def body(backend: LocalBackend) -> None:
        start = await backend.start(spec)
        assert await ask(port) == ["old", "public", str(start.pid)]
        reader, writer = await asyncio.open_unix_connection(path)
        assert (await reader.read()).decode().split()[:2] == ["old", "internal"]
        writer.close()
        await backend.stop("p")
        await backend.release("p")
        await until(lambda: is_gone(start.owner_pid), "end of the holder")
        assert not path.exists()

    lab.run(body)


def test_a_process_that_dies_comes_back_and_no_connection_is_refused(
    lab: Lab, listening: tuple[ProcessSpec, int, Path]
) -> None:
    spec, port, _ = listening

    async def body(backend: LocalBackend) -> None:
        await backend.start(spec)
        pid = int((await ask(port))[2])
        for _ in range(3):
            os.kill(pid, signal.SIGKILL)
            await until(lambda pid=pid: is_gone(pid), "end of the process")
            again = int((await ask(port))[2])
            assert again != pid
            pid = again
        status = await backend.status("p")
        assert (status.restarts, status.pid) == (3, pid)
        status = await backend.stop("p")
        assert status.has_exited and status.restarts == 3

    lab.run(body)


def test_an_upgrade_refuses_no_connection(
    lab: Lab, listening: tuple[ProcessSpec, int, Path]
) -> None:
    spec, port, _ = listening

    async def body(backend: LocalBackend) -> None:
        await backend.start(spec)
        done, seen = asyncio.Event(), list[str]()

        async def knock() -> None:
            while not done.is_set():
                seen.append((await ask(port))[0])

        knocking = [asyncio.create_task(knock()) for _ in range(4)]
        await until(lambda: "old" in seen, "answer of the first generation")
        pid = await backend.upgrade("p", server("new"))
        await until(lambda: "new" in seen, "answer of the second generation")
        status = await backend.status("p")
        assert (status.generation, status.pid) == (2, pid)
        older = await backend.retire("p")
        await until(lambda: is_gone(older), "end of the older generation")
        seen.clear()
        await until(lambda: len(seen) > 20, "answers of the new one alone")
        done.set()
        await asyncio.gather(*knocking)
        assert set(seen[-4:]) == {"new"}
        # What runs now is what comes back, with its own program.
        os.kill(pid, signal.SIGKILL)
        await until(lambda: is_gone(pid), "end of the process")
        assert (await ask(port))[0] == "new"

    lab.run(body)


def test_an_upgrade_that_fails_leaves_the_old_generation_serving(
    lab: Lab, listening: tuple[ProcessSpec, int, Path]
) -> None:
    spec, port, _ = listening

    async def body(backend: LocalBackend) -> None:
        start = await backend.start(spec)
        await backend.upgrade("p", ("sh", "-c", "exit 5"))
        status = await until_status(backend, lambda status: status.error is not None)
        assert "generation 2" in (status.error or "")
        assert (status.generation, status.pid) == (1, start.pid)
        assert (await ask(port))[0] == "old"
        await backend.upgrade("p", server("new"))  # one may try again

    lab.run(body)


def test_at_most_two_generations_live(lab: Lab, listening: tuple[ProcessSpec, int, Path]) -> None:
    from preroll.backends.base import HolderRefusedError

    async def body(backend: LocalBackend) -> None:
        await backend.start(listening[0])
        with pytest.raises(HolderRefusedError, match="no older generation"):
            await backend.retire("p")
        await backend.upgrade("p", server("new"))
        with pytest.raises(HolderRefusedError, match="two generations"):
            await backend.upgrade("p", server("newer"))
        status = await backend.stop("p", 5)
        assert status.has_exited and lab.processes() == []

    lab.run(body)


def test_what_a_retired_generation_leaves_is_ended(
    lab: Lab, listening: tuple[ProcessSpec, int, Path]
) -> None:
    spec, _, _ = listening

    async def body(backend: LocalBackend) -> None:
        inner = " ".join(["exec"] + [f"'{word}'" for word in server("old")[:-2]] + ['"$0"', "old"])
        code = "setsid sleep 1000 & echo rest $!; " + inner
        await backend.start(
            ProcessSpec("p", ("sh", "-c", code, SERVER), spec.env, listen=spec.listen)
        )
        rest = int((await line_with(backend, "rest")).text.split()[1])
        await line_with(backend, "serving")
        await backend.upgrade("p", server("new"))
        await backend.retire("p")
        await until(lambda: is_gone(rest), "end of what was left")
        assert (await backend.status("p")).state is ProcessState.RUNNING

    lab.run(body)


def test_a_crash_loop_waits_longer_each_time(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        # Its own clock: when a line is read says when its reader had time.
        spec = lab.shell("date +%s.%N; exit 1", restart=Restart(0.02, 10))
        await backend.start(spec)
        await until_status(backend, lambda status: status.restarts >= 4)
        stamps = [float(line.text) async for line in backend.lines("p")]
        gaps = [b - a for a, b in itertools.pairwise(stamps)]
        assert all(gap >= 0.02 * 2**n for n, gap in enumerate(gaps[:4])), gaps
        status = await backend.stop("p")  # also while it waits
        assert status.has_exited

    lab.run(body)


def test_a_taken_port_is_named(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"tcp:127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(InputError) as raised:
                await backend.start(lab.shell("true", listen=(Listen("public", address),)))
        assert address in str(raised.value) and "in use" in str(raised.value)
        await backend.start(lab.shell("true"))  # the failed start holds nothing

    lab.run(body)


@pytest.fixture
def deep(lab: Lab) -> Iterator[Path]:
    folder = lab.root / ("x" * 60) / ("y" * 60)
    folder.mkdir(parents=True)
    yield folder
    place = (folder / "run").resolve()
    Lab(folder).clean()
    if place.is_dir() and place.parent.name.startswith("preroll-"):
        for path in place.iterdir():
            path.unlink()
        place.rmdir()


def test_a_long_state_directory_gets_short_sockets(lab: Lab, deep: Path) -> None:
    async def body(_: LocalBackend) -> None:
        backend = LocalBackend(deep)
        start = await backend.start(lab.shell("sleep 1000"))
        assert (deep / "run").is_symlink()
        run = (deep / "run").resolve()
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        assert len(os.fsencode(run / "p.sock")) <= 107
        assert [one.id for one in (await LocalBackend(deep).adopt()).running] == ["p"]
        await backend.kill("p")
        await backend.release("p")
        await until(lambda: is_gone(start.owner_pid), "end of the holder")
        backend.close()

    lab.run(body)


def test_a_socket_directory_that_others_can_enter_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab.root / "run").mkdir(mode=0o755)
    (lab.root / "run").chmod(0o755)
    with pytest.raises(InputError, match="mode 755"):
        sockets.prepare_run(lab.root)
    (lab.root / "run").chmod(0o700)
    assert sockets.prepare_run(lab.root) == lab.root.resolve() / "run"
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(InputError, match=f"owner {os.geteuid()}"):
        sockets.prepare_run(lab.root)


def test_control_sockets_are_private(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell("sleep 1000"))
        facts: Any = backend.client("p").socket.stat()
        assert stat.S_ISSOCK(facts.st_mode) and stat.S_IMODE(facts.st_mode) == 0o600
        assert stat.S_IMODE(backend.folder("p").stat().st_mode) == 0o700

    lab.run(body)
