"""Engines that print, detach and rename themselves as no engine should, behind `preroll serve`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from served import ENGINE, Served, until

from preroll.events import read

Serve = Callable[[str], Served]
GIB = 1 << 30


def wrapped(code: str, *options: str, **keys: str) -> str:
    """TOML of a stage that runs `code` and then the test engine in the same process."""
    then = f"import runpy\nrunpy.run_path({str(ENGINE)!r}, run_name='__main__')\n"
    words = [sys.executable, "-I", "-S", "-c", code + "\n" + then]
    words += ["--listen", "unix:{socket}", *options]
    lines = ["[stage.chat]", 'engine = "command"', f"command = {json.dumps(words)}"]
    lines += ['health = "/health"', *(f"{key} = {value}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_an_engine_that_prints_a_gigabyte_starts_and_costs_no_memory(serve: Serve) -> None:
    code = (
        "import os\nblock = (b'x' * 99 + b'\\n') * 10000\n"
        f"for _ in range({GIB} // len(block) + 1): os.write(1, block)"
    )
    service = serve(wrapped(code, start_timeout='"110s"'))
    service.start(wait=False)
    service.wait_said("serving on")
    (seen,) = service.survey().replicas
    assert seen.status.lines > GIB // 100
    assert resident_bytes(seen.status.owner_pid) < 32 << 20
    assert service.process is not None and resident_bytes(service.process.pid) < 300 << 20
    logs = list((service.state.holders / seen.status.id).glob("log*"))
    assert sum(path.stat().st_size for path in logs) <= 4 * (16 << 20)
    assert service.chat()[0] == 200


def test_an_engine_that_never_ends_its_line_is_heard_all_the_same(serve: Serve) -> None:
    service = serve(wrapped("print('loading 10 % ', end='', flush=True)"))
    service.start()
    (replica,) = service.ready()
    shown = service.command("logs", replica, "--state", str(service.state.root))
    assert "loading 10 %" in shown.stdout


def test_an_engine_that_goes_into_the_background_is_ended_and_the_cause_says_so(
    serve: Serve,
) -> None:
    code = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)"
    service = serve(wrapped(code))
    service.start(wait=False)
    until(
        lambda: any(e.kind == "circuit_open" for e in read(service.state.events)),
        "it is not taken for a replica",
    )
    exits = [e.data["how"] for e in read(service.state.events, kinds=("exit",))]
    # Two while the one in between, which forks the second time, has not ended yet.
    assert all(re.search("left [12] behind", how) for how in exits), exits
    assert service.stop() == 0
    assert service.pids() == []


def test_an_engine_that_renames_itself_and_its_environment_is_ended_to_the_last(
    serve: Serve,
) -> None:
    """What setproctitle does: arguments and environment of the process are written over."""
    code = (
        "import ctypes, os, time\n"
        "area = open('/proc/self/stat').read().rsplit(')', 1)[1].split()\n"
        "begin, end = int(area[45]), int(area[48])\n"
        "is_child = os.fork() == 0\n"
        "if is_child: os.setsid()\n"
        "ctypes.memset(begin, 0, end - begin)\n"
        "ctypes.memmove(begin, b'vllm::engine', 12)\n"
        "if is_child: time.sleep(600)\n"
    )
    service = serve(wrapped(code))
    service.start()
    (seen,) = service.survey().replicas
    assert seen.status.usage is not None and seen.status.usage.processes == 2
    pid = seen.status.pid or 0
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"vllm::engine")
    assert service.stop() == 0
    assert not Path(f"/proc/{pid}").exists() and not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize("code", [0, 1])
def test_an_engine_that_ends_at_once_is_a_failure_whatever_it_says(serve: Serve, code: int) -> None:
    service = serve(wrapped(f"import os\nos._exit({code})"))
    service.start(wait=False)
    until(lambda: any(e.kind == "circuit_open" for e in read(service.state.events)), "it is seen")
    (event, *_) = read(service.state.events, kinds=("circuit_open",))
    assert f"exited with code {code}" in event.data["cause"]
    assert service.chat()[0] == 503
