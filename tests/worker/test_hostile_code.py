"""Code of a stage that blocks, leaks, crashes or lies: what becomes of process and neighbours."""

from __future__ import annotations

import http.client
import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from worker_lab import WorkerProcess, until, worker


def test_code_that_blocks_in_a_thread_delays_nobody_else(tmp_path: Path) -> None:
    code = """
import threading
class Mine(Stage):
    def load(self): self.go = threading.Event()
    def __call__(self, body: bytes):
        if body == b"block": self.go.wait()
        if body == b"go": self.go.set()
        return body
"""
    with worker(tmp_path, code) as mine, ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(mine.request, b"block")
        until(lambda: mine.metric("preroll_worker_requests_running") == 1, "blocked")
        assert mine.request(b"other") == (200, b"other")
        assert mine.request(b"go") == (200, b"go")
        assert blocked.result() == (200, b"block")


def test_code_that_blocks_the_loop_is_named_with_its_line(tmp_path: Path) -> None:
    code = """
import os, time
class Mine(Stage):
    async def __call__(self, body: bytes):
        if body:
            while not os.path.exists(body): time.sleep(0.01)
        return b"ok"
"""
    with worker(tmp_path, code) as mine, ThreadPoolExecutor(1) as pool:
        go = tmp_path / "go"
        blocked = pool.submit(mine.request, str(go).encode())
        mine.wait_said("the event loop has been blocked")
        mine.wait_said("mine.py")
        go.touch()
        assert blocked.result() == (200, b"ok")
        mine.wait_said("the event loop runs again")


def test_leaked_tasks_are_counted_and_harm_nobody(tmp_path: Path) -> None:
    code = """
import asyncio
class Mine(Stage):
    async def __call__(self, body: bytes):
        self.leaked = [*getattr(self, "leaked", []), asyncio.create_task(asyncio.sleep(600))]
        return b"ok"
"""
    with worker(tmp_path, code) as mine:
        before = mine.metric("preroll_worker_tasks")
        for _ in range(20):
            assert mine.request()[0] == 200
        assert mine.metric("preroll_worker_tasks") == before + 20


def test_binary_output_and_a_full_pipe_of_it_are_no_trouble(tmp_path: Path) -> None:
    code = """
import os
class Mine(Stage):
    def __call__(self, body: bytes):
        os.write(1, bytes(range(256)) * 1000)
        return b"ok"
"""
    with worker(tmp_path, code) as mine:
        assert [mine.request() for _ in range(3)] == [(200, b"ok")] * 3


def test_a_segmentation_fault_leaves_the_line_that_caused_it(tmp_path: Path) -> None:
    code = """
import ctypes
class Mine(Stage):
    def __call__(self, body: bytes):
        ctypes.string_at(0)
"""
    with worker(tmp_path, code) as mine:
        connection_dies(mine)
        assert mine.wait() == -signal.SIGSEGV
        assert "Segmentation fault" in mine.output and "mine.py" in mine.output


def connection_dies(mine: WorkerProcess) -> None:
    try:
        answer = mine.request()
    except OSError:
        return
    raise AssertionError(f"answered {answer}")


def test_os_exit_ends_the_process_with_its_status(tmp_path: Path) -> None:
    code = """
import os
class Mine(Stage):
    async def __call__(self, body: bytes): os._exit(7)
"""
    with worker(tmp_path, code) as mine:
        connection_dies(mine)
        assert mine.wait() == 7


def test_a_forked_child_that_returns_answers_nobody(tmp_path: Path) -> None:
    code = """
import os
class Mine(Stage):
    async def __call__(self, body: bytes):
        pid = os.fork()
        return str(pid)

    @route("POST", "/thread")
    def thread(self, body: bytes): return str(os.fork())

    @route("POST", "/later")
    async def later(self, body: bytes):
        import asyncio
        pid = os.fork()
        await asyncio.sleep(0.05)
        return str(pid)
"""
    with worker(tmp_path, code) as mine:
        for path in ("/", "/thread", "/later"):
            status, body = mine.request(path=path)
            assert status == 200 and int(body) > 0
            until(lambda pid=int(body): has_ended(pid), f"the child of {path} ended")
        assert mine.request()[0] == 200


def test_a_forked_child_that_lives_on_keeps_no_client_waiting(tmp_path: Path) -> None:
    code = """
import os, time
class Mine(Stage):
    def stream(self, body: bytes):
        pid = os.fork()
        if pid == 0:
            while not os.path.exists("go"): time.sleep(0.01)
            os._exit(0)
        yield str(pid)
        raise ValueError("the stream breaks while the child has the connection too")
"""
    with worker(tmp_path, code) as mine:
        try:
            with pytest.raises(http.client.IncompleteRead) as broken:
                mine.request()
            assert not has_ended(int(broken.value.partial))
        finally:
            (tmp_path / "go").touch()


def has_ended(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_an_allocation_past_the_limit_fails_its_own_request(tmp_path: Path) -> None:
    code = """
class Mine(Stage):
    def __call__(self, body: bytes):
        return len(bytearray(int(body)))
"""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    with worker(tmp_path, code, before_exec=limit) as mine:
        status, body = mine.request(b"4000000000")
        assert status == 500 and b"MemoryError" in body
        assert mine.request(b"1000") == (200, b"1000")


def test_a_thousand_requests_at_one_slow_stage_are_answered_or_refused(tmp_path: Path) -> None:
    code = """
import os, time
class Mine(Stage):
    def __call__(self, body: bytes):
        while not os.path.exists("go"): time.sleep(0.01)
        return b"ok"
"""
    num, limit = 1000, 8
    with worker(tmp_path, code, settings={"max_concurrency": limit}) as mine:
        before_mb = mine.rss_mb()
        statuses: list[int] = []

        def send() -> None:
            statuses.append(mine.request(b"x" * 100_000)[0])

        threads = [threading.Thread(target=send) for _ in range(num)]
        for thread in threads:
            thread.start()
        # All but those that hold a place or wait for one are refused while the stage stands still.
        until(lambda: len(statuses) == num - 2 * limit, "the others refused")
        assert set(statuses) == {429}
        assert mine.metric("preroll_worker_requests_running") == limit
        assert mine.metric("preroll_worker_requests_waiting") == limit
        assert mine.rss_mb() - before_mb < 150
        (tmp_path / "go").touch()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [200] * 2 * limit + [429] * (num - 2 * limit)


def test_a_fatal_error_answers_everybody_and_ends_the_process_with_the_reason(
    tmp_path: Path,
) -> None:
    code = """
import asyncio
class Mine(Stage):
    async def __call__(self, body: bytes):
        if body == b"fault": raise StageFatal("device 0 is gone")
        await asyncio.sleep(60)
"""
    with worker(tmp_path, code) as mine, ThreadPoolExecutor(4) as pool:
        others = [pool.submit(mine.request, b"wait") for _ in range(3)]
        until(lambda: mine.metric("preroll_worker_requests_running") == 3, "others in flight")
        status, body = mine.request(b"fault")
        assert status == 503 and b"device 0 is gone" in body
        assert {other.result()[0] for other in others} == {503}
        assert mine.wait() == 70
        assert mine.lines[-1] == "preroll.worker.errors.StageFatal: device 0 is gone"
        assert any("mine.py" in line for line in mine.lines)
