"""Clients that leave or stop listening, and a replica that is told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from worker_lab import until, worker

from preroll import Context, Session, Stage, route
from preroll.testing import Served, serve
from preroll.worker import exchange


class Leaving(Stage):
    """Records when its code learned that the client has left."""

    def load(self) -> None:
        self.learned: dict[str, float] = {}
        self.go = threading.Event()
        self.num_cancels = 0

    def note(self, name: str) -> None:
        self.learned[name] = time.monotonic()

    @route("POST", "/async")
    async def wait(self, body: bytes) -> None:
        self.note("async begun")
        try:
            await asyncio.sleep(60)
        finally:
            self.note("async")

    @route("POST", "/sync")
    def spin(self, body: bytes, ctx: Context) -> None:
        self.note("sync begun")
        while not ctx.cancelled and not self.go.wait(0.002):
            pass
        self.note("sync")

    @route("POST", "/generator")
    def generate(self, body: bytes) -> Iterator[bytes]:
        self.note("generator begun")
        try:
            while True:
                yield b"chunk"
                time.sleep(0.002)
        finally:
            self.note("generator")

    @route("POST", "/async-generator")
    async def generate_async(self, body: bytes) -> AsyncIterator[bytes]:
        self.note("async-generator begun")
        try:
            yield b"chunk"
            await asyncio.sleep(60)
        finally:
            self.note("async-generator")

    @route("POST", "/upload")
    async def upload(self, body: AsyncIterator[bytes]) -> None:
        self.note("upload begun")
        try:
            async for _ in body:
                pass
            await asyncio.sleep(60)
        finally:
            self.note("upload")

    @route("WEBSOCKET", "/waiting")
    async def waiting(self, socket: Session) -> None:
        async for _ in socket:
            pass
        self.note("waiting")

    @route("WEBSOCKET", "/busy")
    async def busy(self, socket: Session) -> None:
        try:
            await socket.receive()
            await asyncio.sleep(60)
        finally:
            self.note("busy")

    @route("POST", "/stubborn")
    async def stubborn(self, body: bytes) -> None:
        while not self.go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.num_cancels += 1
                self.note("stubborn")


@pytest.fixture
def leaving() -> Iterator[Served]:
    with serve(Leaving, max_concurrency=4) as served:
        try:
            yield served
        finally:
            served.stage.go.set()  # type: ignore[attr-defined]


def request_text(path: str, length: int = 0) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode()


def running(served: Served) -> float:
    return served.metrics()["preroll_worker_requests_running"]


def learned(served: Served, name: str) -> None:
    until(lambda: name in served.stage.learned, f"{name} learned")  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["async", "sync", "generator", "async-generator", "upload"])
def test_code_of_every_kind_learns_that_its_client_has_left(
    leaving: Served, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", leaving.port)) as client:
        length = 10 if kind == "upload" else 0
        client.sendall(request_text(f"/{kind}", length) + b"x" * (length // 2))
        until(lambda: running(leaving) == 1, "running")
        learned(leaving, f"{kind} begun")  # a thread may not have come to it yet
    learned(leaving, kind)
    until(lambda: running(leaving) == 0, "the place is free")
    assert leaving.metrics()["preroll_worker_requests_cancelled_total"] == 1
    assert "failed" not in capfd.readouterr().err


def test_a_session_that_waits_ends_its_loop_and_a_busy_one_is_cancelled(leaving: Served) -> None:
    for name in ("waiting", "busy"):
        with leaving.connect(f"/{name}") as client:
            client.send("hello")
            until(lambda: leaving.metrics()["preroll_worker_sessions"] == 1, "the session runs")
            client.socket.shutdown(socket.SHUT_RDWR)
            learned(leaving, name)
        until(lambda: leaving.metrics()["preroll_worker_sessions"] == 0, "the session is over")


def test_code_that_ignores_cancellation_holds_its_own_place_only(
    leaving: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exchange, "INSIST_S", 0.02)
    with socket.create_connection(("127.0.0.1", leaving.port)) as client:
        client.sendall(request_text("/stubborn"))
        until(lambda: running(leaving) == 1, "running")
    learned(leaving, "stubborn")
    until(lambda: "goes on though it was cancelled" in capfd.readouterr().err, "said so")
    assert running(leaving) == 1
    assert leaving.stage.num_cancels == 1 + exchange.INSIST_TIMES  # type: ignore[attr-defined]
    leaving.stage.go.set()  # type: ignore[attr-defined]
    until(lambda: running(leaving) == 0, "the place is free")


def test_a_thread_whose_client_has_left_keeps_its_place_until_it_ends() -> None:
    entered, go = threading.Event(), threading.Event()

    class Deaf(Stage):
        def __call__(self, body: bytes) -> bytes:
            if body:
                entered.set()
                go.wait(20)
            return b"ok"

    with serve(Deaf, max_concurrency=1) as served, ThreadPoolExecutor(1) as pool:
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(request_text("/", 1) + b"x")
            assert entered.wait(20)  # a job that no thread has taken yet is dropped
        name = "preroll_worker_requests_cancelled_total"
        until(lambda: served.metrics()[name] == 1, "cancelled")
        assert running(served) == 1
        later = pool.submit(served.post, b"")
        until(lambda: served.metrics()["preroll_worker_requests_waiting"] == 1, "waiting")
        go.set()
        assert later.result().status == 200
        until(lambda: running(served) == 0, "the place is free")


class Endless(Stage):
    """Counts what it has made until somebody ends it."""

    def load(self) -> None:
        self.made = 0
        self.is_over = False

    @route("POST", "/async")
    async def by_coroutine(self, body: bytes) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1000
                self.made += 1
        finally:
            self.is_over = True

    @route("POST", "/thread")
    def by_thread(self, body: bytes) -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * 1000
                self.made += 1
        finally:
            self.is_over = True


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_listener_that_takes_nothing_is_cancelled_in_bounded_memory(kind: str) -> None:
    with (
        serve(Endless, idle_timeout_s=0.3) as served,
        socket.create_connection(("127.0.0.1", served.port)) as client,
    ):
        client.sendall(request_text(f"/{kind}"))
        assert client.recv(1) == b"H"
        until(lambda: served.stage.is_over, "ended")  # type: ignore[attr-defined]
        # What was made lies in the two socket buffers and the server's own 64 KiB.
        assert served.stage.made < 10_000  # type: ignore[attr-defined]
        until(lambda: running(served) == 0, "the place is free")


def test_a_stopped_replica_finishes_what_runs_and_closes(tmp_path: Path) -> None:
    code = """
import os, time
class Mine(Stage):
    def __call__(self, body: bytes):
        while not os.path.exists("go"): time.sleep(0.01)
        return b"done"
    def close(self): print("closed", flush=True)
"""
    with worker(tmp_path, code) as mine, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(mine.request)
        until(lambda: mine.metric("preroll_worker_requests_running") == 1, "running")
        mine.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(mine.socket), "no longer listening")
        (tmp_path / "go").touch()
        assert answer.result() == (200, b"done")
        assert mine.wait() == 0
        assert mine.lines[-1] == "closed"


def refuses(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        return False
