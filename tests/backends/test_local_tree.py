"""A process is owned with all its descendants: none outlives it, however it tries."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from backend_lab import Lab, is_gone, line_with, read, until, until_status

from preroll.backends.base import Limits, Orphans, ProcessState, ProcessStatus
from preroll.backends.local import LocalBackend

DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
print("daemon", os.getpid(), flush=True)
time.sleep(1000)
"""
STUBBORN = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("stubborn", flush=True)
time.sleep(1000)
"""
RENAMED = """
import ctypes, ctypes.util, os, sys, time
libc = ctypes.CDLL(None)
libc.prctl(15, b"VLLM::Worker", 0, 0, 0)
end = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
start, stop = int(end[47]), int(end[48])   # env_start, env_end
ctypes.memset(start, 0, stop - start)
print("renamed", os.getpid(), flush=True)
time.sleep(1000)
"""


def has_processes(status: ProcessStatus, count: int) -> bool:
    return status.usage is not None and status.usage.processes >= count


def groups_of(holder: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/preroll-p-{holder}"))


def number_in(text: str) -> int:
    return int(text.split()[-1])


def test_the_exit_code_and_the_signal_are_kept(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell("exit 7", id="code"))
        await backend.start(lab.shell("kill -SEGV $$", id="signal"))
        code, by_signal = await backend.wait("code"), await backend.wait("signal")
        assert code.exit is not None and (code.exit.code, code.exit.signal) == (7, None)
        assert by_signal.exit is not None
        assert (by_signal.exit.code, by_signal.exit.signal) == (None, signal.SIGSEGV)
        assert code.spawned_ns and code.exited_ns and code.spawned_ns < code.exited_ns

    lab.run(body)


def test_a_program_that_does_not_exist_is_named(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        status = await backend.start(lab.spec("no-such-engine"))
        assert status.has_exited and status.exit is None
        assert "exec failed" in (status.error or "") and "no-such-engine" in (status.error or "")
        text = lab.root / "script"
        text.write_text("no interpreter line")
        text.chmod(0o755)
        status = await backend.start(lab.spec(str(text), id="text"))
        assert status.has_exited and "Exec format error" in (status.error or "")

    lab.run(body)


def test_environment_and_directory_are_exactly_the_given_ones(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        env = {"PATH": os.environ["PATH"], "ÄÖ": "ü=1"}
        await backend.start(lab.spec("env", env=env, id="env"))
        await backend.start(lab.shell("pwd; ls /proc/self/fd; read x; echo end", cwd=lab.root))
        await backend.wait("env")
        shown = {line.text async for line in backend.lines("env")}
        assert {f"PATH={env['PATH']}", "ÄÖ=ü=1", "PREROLL_HOLDER=env"} <= shown
        assert len(shown) == 5  # and the two other marks
        await backend.wait("p")
        lines = [line.text async for line in backend.lines("p")]
        assert lines == [str(lab.root), "0", "1", "2", "3", "end"]  # 3 is ls's own

    lab.run(body)


def test_a_variable_that_is_no_text_is_left_out_and_said(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(backend: LocalBackend) -> None:
        env = {"PATH": os.environ["PATH"], "ODD": os.fsdecode(b"\xff"), "GOOD": "1"}
        await backend.start(lab.spec("env", env=env))
        await backend.wait("p")
        names = {line.text.partition("=")[0] async for line in backend.lines("p")}
        assert "GOOD" in names and "ODD" not in names
        assert "ODD" in caplog.text

    lab.run(body)


def test_a_daemon_is_ended_with_the_process_that_it_left(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        code = f"import os\nif not os.fork():\n exec({DAEMON!r})\nos.read(0, 1)\n"
        code += "import time\nwhile not os.path.exists('go'): time.sleep(0.01)"
        await backend.start(lab.python(code, cwd=lab.root))
        daemon = number_in((await line_with(backend, "daemon")).text)
        assert not is_gone(daemon)
        (lab.root / "go").touch()
        status = await backend.wait("p")
        assert status.exit is not None and status.exit.code == 0
        assert is_gone(daemon) and "left 1 behind" in (status.error or "")

    lab.run(body)


def test_orphans_may_be_waited_for(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        code = "(while ! test -e go; do sleep 0.01; done; echo late) & echo parent"
        await backend.start(lab.shell(code, orphans=Orphans.WAIT, cwd=lab.root))
        await line_with(backend, "parent")
        assert (await backend.status("p")).state is ProcessState.RUNNING
        (lab.root / "go").touch()
        status = await backend.wait("p")
        assert status.exit is not None and status.exit.code == 0 and status.error is None
        await line_with(backend, "late")

    lab.run(body)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_children_in_sessions_of_their_own_are_ended(lab: Lab, how: str) -> None:
    async def body(backend: LocalBackend) -> None:
        code = "setsid sh -c 'echo child $$; setsid sleep 1000 & sleep 1000' & sleep 1000"
        await backend.start(lab.shell(code))
        child = number_in((await line_with(backend, "child")).text)
        status = await (backend.stop("p", 0.2) if how == "stop" else backend.kill("p"))
        assert status.usage is not None and status.usage.processes == 0
        assert is_gone(child) and lab.processes() == []

    lab.run(body)


def test_a_process_that_ignores_the_stop_signal_is_killed_after_the_grace(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.python(STUBBORN))
        await line_with(backend, "stubborn")
        status = await backend.stop("p", grace_s=0.3)
        assert status.exit is not None and status.exit.signal == signal.SIGKILL
        assert (status.exited_ns or 0) - (status.spawned_ns or 0) >= 300_000_000

    lab.run(body)


def test_the_stop_signal_reaches_the_engine_behind_a_shell(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        inner = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        await backend.start(lab.shell(f'sh -c "{inner}"; true'))
        await line_with(backend, "ready")
        await backend.stop("p", grace_s=30)
        assert "saved" in [line.text async for line in backend.lines("p")]

    lab.run(body)


def test_a_second_stop_may_be_more_impatient(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.python(STUBBORN))
        await line_with(backend, "stubborn")
        patient = asyncio.create_task(backend.stop("p", grace_s=3600))
        await until_status(backend, lambda status: status.state is ProcessState.STOPPING)
        await backend.stop("p", grace_s=0.05)
        assert (await patient).has_exited

    lab.run(body)


def test_a_storm_of_forks_is_ended_to_the_last(lab: Lab) -> None:
    storm = (
        "echo storm; while :; do (sleep 0.01 &) ; (setsid sh -c 'sleep 0.02; sleep 1000' &) ; done"
    )

    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell(storm))
        await line_with(backend, "storm")
        await until_status(backend, lambda status: has_processes(status, 50))
        await backend.kill("p")
        assert lab.processes() == []

    lab.run(body)


def test_short_lived_orphans_are_collected(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        code = "for i in $(seq 300); do (true &) ; done; echo done; sleep 1000"
        start = await backend.start(lab.shell(code))
        await line_with(backend, "done")
        children = Path(f"/proc/{start.owner_pid}/task/{start.owner_pid}/children")
        await until(lambda: len(children.read_text().split()) == 1, "collected orphans")

    lab.run(body)


def test_a_killed_holder_takes_its_child_along_and_adoption_ends_the_rest(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        code = "setsid sh -c 'echo rest $$; sleep 1000' & sleep 1000"
        start = await backend.start(lab.shell(code))
        rest = number_in((await line_with(backend, "rest")).text)
        os.kill(start.owner_pid, signal.SIGKILL)
        await until(lambda: is_gone(start.pid or 0), "end of the direct child")
        adopted = await backend.adopt()
        assert [one.id for one in adopted.leftovers] == ["p"]
        assert adopted.leftovers[0].num_killed >= 1
        assert is_gone(rest) and lab.processes() == [] and not adopted.running
        assert groups_of(start.owner_pid) == []
        again = await backend.adopt()
        assert not again.leftovers and [one.id for one in again.ended] == ["p"]
        assert "killed" in (again.ended[0].error or "")
        assert (await backend.wait("p")).has_exited
        await backend.start(lab.shell("echo anew"))  # the id is free

    lab.run(body)


def test_a_process_that_wrote_over_its_environment_is_ended_too(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        code = f"import os, time\nif not os.fork():\n exec({RENAMED!r})\ntime.sleep(1000)"
        start = await backend.start(lab.python(code))
        renamed = number_in((await line_with(backend, "renamed")).text)
        assert b"PREROLL" not in read(f"/proc/{renamed}/environ")
        os.kill(start.owner_pid, signal.SIGKILL)
        await until(lambda: is_gone(start.pid or 0), "end of the direct child")
        assert not is_gone(renamed)
        await backend.adopt()
        assert is_gone(renamed)

    lab.run(body)


def test_a_killed_starter_costs_nothing(lab: Lab) -> None:
    starter = """
import asyncio, os, sys
from pathlib import Path
from preroll.backends.base import ProcessSpec
from preroll.backends.local import LocalBackend
async def main():
    backend = LocalBackend(Path(sys.argv[1]))
    code = "echo up; while :; do echo tick; sleep 0.02; done"
    await backend.start(ProcessSpec("p", ("sh", "-c", code), {"PATH": os.environ["PATH"]}))
    print("started", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", starter, str(lab.root)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"started\n"
        process.kill()

    async def body(backend: LocalBackend) -> None:
        adopted = await backend.adopt()
        assert [status.id for status in adopted.running] == ["p"]
        seen = adopted.running[0].lines
        async for line in backend.lines("p", follow=True):
            if line.n > seen + 3:
                break
        status = await backend.stop("p", 5)
        assert status.exit is not None and status.exit.signal == signal.SIGTERM

    lab.run(body)


def test_a_holder_survives_hangup_and_ends_in_order_when_told_to(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        start = await backend.start(
            lab.shell("trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait")
        )
        await line_with(backend, "up")
        os.kill(start.owner_pid, signal.SIGHUP)
        os.kill(start.owner_pid, signal.SIGPIPE)
        assert (await backend.status("p")).state is ProcessState.RUNNING
        waiter = asyncio.create_task(backend.wait("p"))
        await asyncio.sleep(0)
        os.kill(start.owner_pid, signal.SIGTERM)
        assert (await waiter).has_exited
        await until(lambda: is_gone(start.owner_pid), "end of the holder")
        assert lab.processes() == [] and not backend.client("p").socket.exists()
        assert lab.log()[-1].endswith("out bye")

    lab.run(body)


def test_a_child_gets_default_signal_handling(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        await backend.start(lab.shell("grep -E 'Sig(Ign|Blk)' /proc/self/status"))
        await backend.wait("p")
        values = [int(line.text.split()[1], 16) async for line in backend.lines("p")]
        # glibc keeps signals 32 and 33 for itself; whatever make starts has them ignored.
        assert [value & ~(0b11 << 31) for value in values] == [0, 0]

    lab.run(body)


def test_processors_and_priority_are_applied(lab: Lab) -> None:
    cpu = max(os.sched_getaffinity(0))

    async def body(backend: LocalBackend) -> None:
        code = "grep Cpus_allowed_list /proc/self/status; sleep 0.2; nice"
        start = await backend.start(lab.shell(code, limits=Limits(cpus=(cpu,), nice=5)))
        assert start.limits_applied["cpus"] == "affinity"
        assert start.limits_applied["nice"] == "priority"
        assert os.sched_getaffinity(start.owner_pid) == os.sched_getaffinity(0)
        await backend.wait("p")
        lines = [line.text async for line in backend.lines("p")]
        assert lines[0].split()[1] == str(cpu) and lines[1] == "5"

    lab.run(body)


def test_a_memory_limit_ends_the_tree_and_is_counted(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> int:
        code = "x = bytearray(400 << 20); print('fits')"
        start = await backend.start(lab.python(code, limits=Limits(memory_bytes=64 << 20)))
        applied = start.limits_applied["memory"]
        if applied.startswith("none"):
            pytest.skip(f"no memory limit here: {applied}")
        status = await backend.wait("p")
        assert status.exit is not None and status.exit.signal == signal.SIGKILL
        assert status.oom_kills >= 1
        await backend.release("p")
        saved = lab.saved_status()
        assert saved["oom_kills"] == status.oom_kills and saved["cgroups"] == []
        return status.owner_pid

    holder = lab.run(body)
    assert groups_of(holder) == []


def test_without_a_limit_memory_is_not_limited_and_said_so(lab: Lab) -> None:
    async def body(backend: LocalBackend) -> None:
        start = await backend.start(lab.shell("ulimit -v; sleep 1000"))
        assert start.limits_applied["memory"].startswith("none")
        assert (await line_with(backend, "unlimited")).text == "unlimited"

    lab.run(body)
