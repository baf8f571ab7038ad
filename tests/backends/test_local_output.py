"""What a process prints reaches its readers stamped, whole, and in bounded memory."""

from __future__ import annotations

import asyncio
import json
import socket
import time

from backend_lab import Lab, line_with, read, texts

from preroll.backends.base import Line, ProcessState, Stdio
from preroll.backends.local import LocalBackend

FLOOD_BYTES = 200 << 20


async def all_lines(backend: LocalBackend, id: str = "p", *, follow: bool = False) -> list[Line]:
    return [line async for line in backend.lines(id, follow=follow)]


def rss_kib(pid: int) -> int:
    text = read(f"/proc/{pid}/status").decode()
    return int(text.split("VmRSS:")[1].split()[0])


def test_both_streams_are_stamped_and_numbered(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        before = time.monotonic_ns()
        await backend.start(lab.shell("echo one; echo two >&2; echo three"))
        status = await backend.wait("p")
        lines = await all_lines(backend)
        assert sorted((line.stream, line.text) for line in lines) == [
            ("err", "two"),
            ("out", "one"),
            ("out", "three"),
        ]
        assert [line.n for line in lines] == [1, 2, 3]
        assert status.lines == 3
        spawned, last = status.spawned_ns or 0, status.last_line_ns or 0
        stamps = [line.t_ns for line in lines]
        assert before <= spawned <= stamps[0] <= stamps[-1] == last <= time.monotonic_ns()
        assert stamps == sorted(stamps)

    lab.run(body)


def test_since_continues_where_a_reader_left_off(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell("seq 10"))
        await backend.wait("p")
        assert await texts(backend, since=8) == ["9", "10"]
        assert await texts(backend, since=10) == []

    lab.run(body)


def test_a_follower_sees_lines_as_they_come_and_ends_with_the_process(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        gate = lab.root / "gate"
        code = "echo ready; while ! test -e gate; do sleep 0.01; done; echo bye"
        await backend.start(lab.shell(code, cwd=lab.root))
        seen = []
        async for line in backend.lines("p", follow=True):
            seen.append(line.text)
            gate.touch()
        assert seen == ["ready", "bye"]

    lab.run(body)


def test_each_kind_of_line_end_splits(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell(r"printf 'a\nb\r\nc\rd'"))
        await backend.wait("p")
        assert await texts(backend) == ["a", "b", "c", "d"]

    lab.run(body)


def test_a_progress_bar_is_seen_while_it_moves(lab: Lab) -> None:
    code = r"printf '\r10%%'; sleep 0.5; printf '\r20%%'; sleep 1000"

    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell(code))
        first, second = await line_with(backend, "10%"), await line_with(backend, "20%")
        assert first.partial and second.partial and first.t_ns < second.t_ns

    lab.run(body)


def test_a_prompt_without_line_end_is_passed_on(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell("printf 'loading weights'; sleep 1000"))
        line = await line_with(backend, "loading weights")
        assert line.partial

    lab.run(body)


def test_an_endless_line_comes_in_pieces(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell("head -c 100000 /dev/zero | tr '\\0' x"))
        await backend.wait("p")
        lines = await all_lines(backend)
        assert sum(len(line.text) for line in lines) == 100_000
        assert all(len(line.text) <= 16384 for line in lines)
        assert all(line.partial for line in lines[:-1])

    lab.run(body)


def test_bytes_that_are_no_text_do_no_harm(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell(r"printf 'a\377\376b\000c\nafter\n'"))
        await backend.wait("p")
        assert await texts(backend) == ["a\ufffd\ufffdb\0c", "after"]
        raw = (lab.root / "holders/p/log").read_bytes()
        assert b"a\xff\xfeb\0c\n" in raw

    lab.run(body)


def test_a_terminal_is_a_terminal(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        code = "test -t 1 && test -t 2 && echo tty; stty size </dev/tty"
        await backend.start(lab.shell(code, stdio=Stdio.PTY))
        status = await backend.wait("p")
        lines = await all_lines(backend)
        assert [line.text for line in lines][:2] == ["tty", "50 200"], (lines, status)
        assert {line.stream for line in lines} == {"pty"}

    lab.run(body)


def test_a_flood_is_read_at_full_speed_in_bounded_memory(lab: Lab) -> None:
    """200 MB of short lines: nothing blocks, memory and log stay bounded, every line counts."""
    line = "x" * 99
    code = f"yes {line} | head -c {FLOOD_BYTES}"

    async def body(backend: LocalBackend) -> None:
        start = await backend.start(lab.shell(code, log_bytes=1 << 20, log_files=3))
        peak = 0
        waiting = asyncio.create_task(backend.wait("p"))
        while not waiting.done():
            peak = max(peak, rss_kib(start.owner_pid))
            await asyncio.sleep(0.02)
        status = waiting.result()
        assert status.exit is not None and status.exit.code == 0
        assert status.lines == -(-FLOOD_BYTES // 100)
        assert peak < 16 * 1024
        logs = sorted((lab.root / "holders/p").glob("log*"))
        assert [path.name for path in logs] == ["log", "log.1", "log.2"]
        assert all(path.stat().st_size <= 1 << 20 for path in logs)
        assert (await texts(backend, since=status.lines - 3))[0] == line

    lab.run(body)


def test_a_follower_that_does_not_read_holds_nobody_up(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        with socket.socket(socket.AF_UNIX) as deaf:
            start = await backend.start(lab.shell("read x </dev/null; seq 300000; sleep 0.1"))
            deaf.connect(str(backend.client("p").socket))
            deaf.sendall(b'{"op": "lines", "since": 0, "follow": true}\n')
            status = await backend.wait("p")
            assert status.state is ProcessState.EXITED and status.lines == 300_000
            assert rss_kib(start.owner_pid) < 16 * 1024
            deaf.settimeout(30)
            with deaf.makefile("r") as replies:
                for text in replies:
                    last = json.loads(text)
                    if "ok" in last:
                        break
            assert last["dropped"] > 0 and last["next"] == 300_000

    lab.run(body)


def test_lines_of_a_process_that_has_ended_are_kept_and_logged(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell("echo ready; echo 'CUDA error' >&2; exit 3"))
        await backend.wait("p")

    lab.run(body)

    async def later(backend: LocalBackend) -> None:
        adopted = await backend.adopt()
        assert [status.id for status in adopted.exited] == ["p"]
        assert adopted.exited[0].exit is not None and adopted.exited[0].exit.code == 3
        assert set(await texts(backend)) == {"ready", "CUDA error"}
        await backend.release("p")
        status = await backend.status("p")
        assert status.exit is not None and status.exit.code == 3

    lab.run(later)
    assert {line.split(" ", 1)[1] for line in lab.log()} == {"out ready", "err CUDA error"}
