"""Fork servers begun before control has imported itself: the right ones, owned, never left over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines import ask
from served import PREROLL, Served, until

from preroll.cli import serve as command
from preroll.config import parse_app
from preroll.engines.base import get_engine
from preroll.errors import InputError
from preroll.events import read as events
from preroll.serve import ahead
from preroll.serve.fork_process import server_id, socket_name
from preroll.serve.statedir import StateDir

pytestmark = pytest.mark.timeout(120)

SOURCE = """
import preroll

class Probe(preroll.Stage):
    async def __call__(self, body: dict):
        return {}
"""
STAGE = '[stage.probe]\nengine = "python"\nclass = "app:Probe"\nimports = ["heavy"]\n'
SLOW = """
import sys, time

class Slow:
    def find_spec(self, name, *rest):
        if name == "preroll.cli.service":
            time.sleep(60)

if "serve" in sys.orig_argv:
    sys.meta_path.insert(0, Slow())
"""
LATE = """
import os, sys, time
if "preroll.worker.forkserver" in " ".join(sys.orig_argv):
    {what}
"""


def service_of(serve: Callable[..., Served], more: str = "", heavy: str = "") -> Served:
    service = serve(STAGE + more, SOURCE)
    (service.folder / "heavy.py").write_text(heavy or "print('heavy: imported', flush=True)\n")
    return service


def recorded(service: Served, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
    return [(e.kind, dict(e.data)) for e in events(service.state.events, kinds=kinds)]


def gone(service: Served) -> None:
    """A holder that was released takes a moment to end."""
    assert service.pids() == []
    until(lambda: not service.holder_pids(), "no holder is left")


def begun_by_hand(service: Served) -> ahead.Ahead:
    begun = ahead.Ahead(service.state)
    begun.begin(service.file)
    assert begun.lock is not None and begun.begun
    return begun


def test_the_server_runs_before_control_does_and_is_the_one_that_is_used(
    serve: Callable[..., Served],
) -> None:
    service = service_of(serve, "replicas = 2\n")
    service.start()
    service.starts(2)  # in the log, and so is what went before
    started, ready = recorded(service, "fork_server_started", "fork_server_ready")
    assert started[1]["ahead"] is True and ready[1]["unfit"] == []
    assert all(start.is_forked for start in service.starts(2))
    assert service.stop() == 0
    logs = list(service.state.holders.glob("forkserver-*/log"))
    assert [path.read_text().count("heavy: imported") for path in logs] == [1]
    gone(service)


@pytest.mark.parametrize(
    "more",
    [
        "",
        'env = { FLAVOUR = "sweet", PYTHONPATH = "/x" }\n',
        'cwd = "inner"\n',
        f'python = "{sys.executable}"\n',
        'python = "{here}/python"\nenv = {{ PYTHONPATH = "/x" }}\n',
        "options = { a = 1 }\nreplicas = 0\nmax_concurrency = 2\n",
    ],
)
def test_it_is_the_server_that_the_checked_stage_asks_for(more: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "python").symlink_to(sys.executable)
    file = tmp_path / "app.toml"
    file.write_text(STAGE + more.format(here=tmp_path) if "{here}" in more else STAGE + more)
    stage = parse_app(file.read_text(), file).stages["probe"]
    launch = get_engine("python").launch(stage, tmp_path, "unix:/run/x.sock")
    (fork,) = ahead.forks_of(file)
    assert launch.fork is not None
    assert fork == launch.fork and server_id(fork) == server_id(launch.fork)


@pytest.mark.parametrize(
    "text",
    [
        STAGE + 'env = { KEY = { secret = "env:KEY" } }\n',
        STAGE + "pty = true\n",
        STAGE + 'python = "/nowhere/python"\n',
        STAGE + 'python = "~nobody-of-that-name/python"\n',
        STAGE + "cwd = 3\n",
        STAGE.replace('["heavy"]', "[]"),
        STAGE.replace('["heavy"]', '["heavy", 3]'),
        STAGE.replace('["heavy"]', '"heavy"'),
        STAGE.replace('"python"', '"command"'),
        "stage = 3\n",
        "stage = [1]\n",
        "[stage]\nprobe = 3\n",
        "not = toml = at all",
        "",
        "x = " + "[" * 5000,
    ],
)
def test_what_is_not_plain_is_left_to_the_check(text: str, tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    file.write_text(text)
    assert ahead.forks_of(file) == []
    nothing = ahead.Ahead(StateDir(tmp_path / "state"))
    nothing.begin(file)
    assert nothing.lock is None and not nothing.begun
    nothing.undo()
    assert not (tmp_path / "state").exists()


def test_no_file_a_folder_bytes_and_a_pipe_are_left_to_the_check(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"#" * ((1 << 20) + 1))
    os.mkfifo(tmp_path / "pipe")  # whoever reads it first has it: opening it would wait for ever
    for name in ("none", ".", "bytes", "large", "pipe", "x" * 300, "nul\0"):
        assert ahead.forks_of(tmp_path / name) == [], name


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("python"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
keys = st.sampled_from(["engine", "class", "imports", "env", "cwd", "python", "pty"])


@given(st.dictionaries(st.text(max_size=3), st.dictionaries(keys, values) | values) | values)
def test_no_table_makes_it_fail(stages: Any) -> None:
    tables = (
        {
            k: {**v, "engine": "python", "imports": ["a"]} if isinstance(v, dict) else v
            for k, v in stages.items()
        }
        if isinstance(stages, dict)
        else stages
    )
    for given_tables in (stages, tables):
        for fork in ahead._forks(given_tables, Path("/app")):
            assert fork.imports and all(isinstance(name, str) for name in fork.imports)


def test_a_refused_app_leaves_nothing(tmp_path: Path) -> None:
    service = Served(tmp_path, STAGE + "gpus = 1000\n")
    with pytest.raises(InputError, match="this machine has"):
        command.main([str(service.file), "--state", str(service.state.root)])
    assert not service.state.root.exists()
    gone(service)


def test_a_refused_app_leaves_a_state_that_was_there(tmp_path: Path) -> None:
    service = Served(tmp_path, STAGE + "gpus = 1000\n")
    service.state.prepare()
    with pytest.raises(InputError, match="this machine has"):
        command.main([str(service.file), "--state", str(service.state.root)])
    gone(service)
    assert service.state.holders.is_dir() and not list(service.state.run.iterdir())


def test_what_had_begun_to_listen_leaves_nothing_either(serve: Callable[..., Served]) -> None:
    service = service_of(serve)
    service.state.prepare()
    begun = begun_by_hand(service)
    (name,) = begun.begun
    until(service.state.socket(socket_name(name)).exists, "the server listens")
    begun.undo()
    gone(service)
    assert not list(service.state.run.iterdir())


def test_a_start_that_fails_ends_what_was_begun(serve: Callable[..., Served]) -> None:
    service = service_of(serve)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", service.port))
        taken.listen()
        done = subprocess.run(
            [*PREROLL, "serve", str(service.file), "--state", str(service.state.root)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode != 0 and str(service.port) in done.stderr
    gone(service)


def test_a_signal_before_the_service_is_there_leaves_nothing(serve: Callable[..., Served]) -> None:
    service = service_of(serve)
    (service.folder / "sitecustomize.py").write_text(SLOW)
    service.start(wait=False, env={"PYTHONPATH": str(service.folder)})
    until(service.holder_pids, "the server's holder")
    assert service.stop() == 128 + signal.SIGTERM
    gone(service)
    assert not service.state.root.exists()


@pytest.mark.parametrize(
    ("what", "failures"),
    [
        ("time.sleep(3)", 0),
        ("os.path.exists('died') or (open('died', 'w'), os.kill(os.getpid(), 9))", 1),
    ],
)
def test_a_server_that_is_late_or_dies_is_waited_for_or_begun_again(
    serve: Callable[..., Served], what: str, failures: int
) -> None:
    service = service_of(serve, 'env = { PYTHONPATH = "." }\nreplicas = 1\n')
    (service.folder / "sitecustomize.py").write_text(LATE.format(what=what))
    service.start()
    service.starts(1)
    begun = [data["ahead"] for _, data in recorded(service, "fork_server_started")]
    assert begun == [True, *[False] * failures]
    assert len(recorded(service, "fork_server_failed")) == failures
    status, _, _ = ask(service, "/x", {})
    assert status == 200


def test_what_no_stage_wants_after_all_is_dismissed(serve: Callable[..., Served]) -> None:
    service = service_of(serve)
    begun = begun_by_hand(service)
    assert begun.lock is not None
    begun.lock.release()
    service.write(STAGE.replace('imports = ["heavy"]', ""))
    service.start()
    until(lambda: recorded(service, "dismissed"), "the server nobody wants")
    until(lambda: not service.survey().forks, "its end")
    assert not service.starts(1)[0].is_forked


def test_beside_a_service_that_runs_nothing_is_begun(serve: Callable[..., Served]) -> None:
    service = service_of(serve)
    service.start()
    before = set(service.pids())
    service.kill()
    second = ahead.Ahead(service.state)
    second.begin(service.file)
    assert second.lock is None, "control takes what runs"
    service.start()
    assert set(service.pids()) == before
    service.write(STAGE.replace('"heavy"', '"heavy", "json"'))
    second.begin(service.file)
    assert second.lock is None and not second.begun
    refused = service.command("serve", str(service.file), "--state", str(service.state.root))
    assert "is served by process" in refused.stderr
    assert set(service.pids()) == before


def test_two_at_once_one_has_the_state(serve: Callable[..., Served]) -> None:
    service = service_of(serve)
    found = [ahead.Ahead(service.state) for _ in range(2)]
    both = [threading.Thread(target=one.begin, args=(service.file,)) for one in found]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len([one for one in found if one.lock]) == 1
    for one in found:
        one.undo()
    gone(service)


def test_nothing_heavy_is_imported_before_it() -> None:
    code = "import sys, preroll.cli.main, preroll.cli.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "pydantic", "rich", "uvicorn", "ssl"} & set(done.stdout.split())
