"""Probes that start replicas: planted lazy initialisation, and a planted shared device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preroll import measurements
from preroll.cli.probe import main
from preroll.errors import InputError, RefusedError
from preroll.instruments.colocation import Load
from preroll.instruments.colocation import probe as colocation
from preroll.instruments.load.requests import parse_address

APP = '''
import asyncio, fcntl, os

async def respond(send, body):
    head = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})

called = set()

async def lazy(scope, receive, send):
    """Pays 80 ms at the first call of /lazy, and 40 ms at the first call of anything."""
    if scope["type"] != "http":
        return
    path = scope["path"]
    if path == "/lazy" and path not in called:
        await asyncio.sleep(0.08)
    if path.startswith("/any") and not any(p.startswith("/any") for p in called):
        await asyncio.sleep(0.04)
    called.add(path)
    await respond(send, b"ok")

async def device(scope, receive, send):
    """Holds a lock of the machine for 5 ms, as two stages on one device would."""
    if scope["type"] != "http":
        return
    with open(os.environ["DEVICE"], "a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                await asyncio.sleep(0.0005)
        await asyncio.sleep(0.005)
        fcntl.flock(file, fcntl.LOCK_UN)
    await respond(send, b"ok")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    (tmp_path / "planted.py").write_text(APP)
    return tmp_path


def app_of(folder: Path, name: str, **stages: str) -> str:
    """`stages`: a callable of planted.py by stage name, with its device's file after a comma."""
    lines = []
    for stage, app in stages.items():
        callable_name, _, device = app.partition(",")
        lines += [f"[stage.{stage}]", 'engine = "asgi"', f'app = "planted:{callable_name}"']
        lines += [f'env = {{ DEVICE = "{folder / (device or stage)}" }}']
        lines += [f'[[route]]\npath = "/{stage}/*"\nstage = "{stage}"']
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_first_call_that_the_warm_up_missed_is_found_and_a_warm_route_is_not_accused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = app_of(folder, "app.toml", one="lazy")
    words = ["warm", app, "--api", "http", "--path", "/lazy,/any1,/any2", "--requests", "20"]
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "/lazy: its first call takes" in said and "on every replica; warm it up" in said
    assert "/any1: its first call" not in said and "/any2: its first call" not in said
    (entry,) = measurements.read(folder / "app.measured.toml")
    assert (entry.kind, entry.unit) == ("warm", "ms") and 60 < entry.value < 400
    words[words.index("/lazy,/any1,/any2")] = "/plain"
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sides"][0]["routes"][0]["name"] == "/plain"


def test_two_commands_are_compared_by_start_and_throughput(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app, other = app_of(folder, "a.toml", one="lazy"), app_of(folder, "b.toml", one="device")
    words = ["warm", app, "--against", other, "--api", "http", "--path", "/x", "--requests", "24"]
    main(words)
    said = capsys.readouterr().out
    assert f"one of {app}: 3 fresh" in said and f"one of {other}: 3 fresh" in said
    assert "longer to start than" in said


def test_a_warm_probe_needs_something_that_it_can_start(folder: Path) -> None:
    with pytest.raises(InputError, match="app file"):
        main(["warm", "http://127.0.0.1:1"])


def test_stages_that_share_a_device_slow_each_other_and_those_that_do_not_are_free(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def together(app: str) -> float:
        words = ["colocation", app, "one", "two", "--api", "http", "--duration", "120ms"]
        assert main([*words, "--connections", "2", "--second-connections", "2"]) == 0
        found = measurements.read(folder / f"{Path(app).stem}.measured.toml")
        assert [(m.stage, m.kind) for m in found] == [("one", "colocation two")]
        assert "of its rate" in capsys.readouterr().out
        return found[0].value

    shared = together(app_of(folder, "shared.toml", one="device,d", two="device,d"))
    apart = together(app_of(folder, "apart.toml", one="device,d1", two="device,d2"))
    assert shared < 1.3 < apart


def test_a_colocation_of_nothing_is_refused(folder: Path) -> None:
    app = app_of(folder, "app.toml", one="lazy")
    with pytest.raises(InputError, match="allowed: one"):
        main(["colocation", app, "one", "two"])
    with pytest.raises(InputError, match="twice"):
        main(["colocation", app, "one", "one"])
    load = Load("one", parse_address("tcp:127.0.0.1:9", 4000), ({"path": "/"},), 1)
    with pytest.raises(RefusedError, match="needs 6"):
        colocation(load, load, 0.1, rounds=5)
    with pytest.raises(RefusedError, match="nothing of one succeeded"):
        colocation(load, load, 0.1)
