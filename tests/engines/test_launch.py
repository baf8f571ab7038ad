"""From a stage to a command line: addresses, limits, names, secrets, and flags that are ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from preroll.engines.base import ENGINES, Listens, flag_value, get_engine
from preroll.errors import InputError

from .conftest import launch_of, problems_of, stage_of

TCP = "tcp:127.0.0.1:9001"


def test_every_engine_of_the_app_file_is_there() -> None:
    for name in ENGINES:
        assert get_engine(name).name == name


def test_vllm_listens_on_a_socket_with_its_own_limit(programs: Path, tmp_path: Path) -> None:
    launch = launch_of(stage_of("vllm", 'args = ["--max-model-len=4096"]'), tmp_path)
    assert launch.argv == (
        *(str(programs / "vllm"), "serve", "org/model", "--served-model-name", "org/model"),
        *("--uds", "/run/s.http", "--max-num-seqs", "256", "--max-model-len=4096"),
    )
    assert launch.slots == 256
    assert launch.env["VLLM_NO_USAGE_STATS"] == "1"
    assert launch.probe.path == "/health"
    assert json.loads(launch.warmup[0].body)["model"] == "org/model"
    assert not launch.warmup[0].is_required


def test_vllm_keeps_the_limit_that_its_flags_give(programs: Path, tmp_path: Path) -> None:
    launch = launch_of(stage_of("vllm", 'args = ["--max-num-seqs", "8"]'), tmp_path)
    assert launch.slots == 8
    assert launch.argv.count("--max-num-seqs") == 1


def test_a_limit_of_the_file_becomes_the_engines_limit(programs: Path, tmp_path: Path) -> None:
    for engine, flag in (("vllm", "--max-num-seqs"), ("sglang", "--max-running-requests")):
        launch = launch_of(stage_of(engine, "max_concurrency = 3"), tmp_path, TCP)
        assert launch.slots == 3
        assert flag_value(launch.argv, flag) == "3"


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("vllm", "--max-num-seqs"),
        ("sglang", "--max-running-requests"),
        ("trtllm", "--max_batch_size"),
        ("llama.cpp", "-np"),
    ],
)
def test_a_limit_above_the_engines_own_is_an_error(engine: str, flag: str) -> None:
    message = problems_of(engine, f'args = ["{flag}", "4"]\nmax_concurrency = 5')
    assert "stage.s.max_concurrency: 5 is above the engine's own limit" in message
    assert "allowed: at most 4" in message


def test_vllm_gets_its_key_by_environment_and_the_door_by_header(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREROLL_TEST_KEY", "s3cret")
    launch = launch_of(stage_of("vllm", 'api_key = "env:PREROLL_TEST_KEY"'), tmp_path)
    assert launch.env["VLLM_API_KEY"] == "s3cret"
    assert launch.authorization == "Bearer s3cret"
    assert launch.secrets == {"s3cret"}
    assert "s3cret" not in " ".join(launch.argv)


def test_sglang_and_trtllm_listen_on_a_port(programs: Path, tmp_path: Path) -> None:
    sglang = launch_of(stage_of("sglang", 'models = ["m"]'), tmp_path, TCP)
    assert sglang.argv == (
        *(sys.executable, "-m", "sglang.launch_server", "--model-path", "org/model"),
        *("--host", "127.0.0.1", "--port", "9001", "--served-model-name", "m"),
        *("--max-running-requests", "256"),
    )
    trtllm = launch_of(stage_of("trtllm", 'models = ["m"]'), tmp_path, TCP)
    assert trtllm.argv == (
        *(str(programs / "trtllm-serve"), "org/model", "--host", "127.0.0.1", "--port", "9001"),
        *("--served_model_name", "m", "--max_batch_size", "64"),
    )
    for engine in ("sglang", "trtllm"):
        assert get_engine(engine).listens(stage_of(engine)) is Listens.PORT
        assert "allowed: one" in problems_of(engine, 'models = ["a", "b"]')


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "asgi", "llama.cpp"])
def test_every_reserved_flag_is_refused_in_both_spellings(engine: str) -> None:
    for flag, instead in get_engine(engine).reserved_flags.items():
        for spelling in (f'["{flag}=1"]', f'["{flag}", "1"]'):
            message = problems_of(engine, f"args = {spelling}")
            assert f"app:4:9 stage.s.args[0]: '{flag}' is set by Preroll" in message
            assert instead in message


def test_a_reserved_variable_is_refused() -> None:
    message = problems_of("vllm", 'env = { VLLM_API_KEY = "x" }')
    assert "'VLLM_API_KEY' is set by Preroll for engine 'vllm'; use api_key" in message


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_missing_engine_says_what_to_install(engine: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not installed; install"):
        launch_of(stage_of(engine), tmp_path, TCP)


def test_an_engine_of_another_environment_is_found_on_the_stages_path(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    env = f'env = {{ PATH = "{programs}:/usr/bin" }}'
    assert launch_of(stage_of("vllm", env), tmp_path).argv[0] == str(programs / "vllm")
    (programs / "python3").write_text("#!/bin/sh\n")
    (programs / "python3").chmod(0o755)
    sglang = launch_of(stage_of("sglang", env), tmp_path, TCP)
    assert sglang.argv[0] == str(programs / "python3")


def test_a_model_folder_beside_the_app_is_given_by_its_path(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.safetensors").write_bytes(b"x")
    stage = stage_of("vllm", 'model = "weights"\nmodels = ["m"]')
    launch = launch_of(stage, tmp_path)
    assert launch.argv[2] == str(tmp_path / "weights")
    files = get_engine("vllm").weights(stage, tmp_path)
    assert files == (tmp_path / "weights" / "a.safetensors",)


def test_a_command_gets_port_or_socket_in_arguments_and_environment(tmp_path: Path) -> None:
    stage = stage_of("command", 'command = "env serve"\nenv = { PORT = "{port}" }')
    assert get_engine("command").listens(stage) is Listens.PORT
    launch = launch_of(stage, tmp_path, TCP)
    assert launch.env == {"PORT": "9001", "PYTHONUNBUFFERED": "1"}
    assert launch.argv[0].endswith("/env")
    stage = stage_of("command", 'command = "env serve"\nargs = ["--at={socket}"]')
    assert get_engine("command").listens(stage) is Listens.SOCKET
    assert launch_of(stage, tmp_path).argv[-1] == "--at=/run/s.http"


def test_a_command_with_a_fixed_port_is_called_there(tmp_path: Path) -> None:
    stage = stage_of("command", 'command = "env serve"\nport = 8123')
    assert launch_of(stage, tmp_path, TCP).address == "tcp:127.0.0.1:8123"


def test_a_command_that_does_not_exist_is_found_before_it_is_started(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such program on PATH"):
        launch_of(stage_of("command", 'command = "nosuchprogram {port}"'), tmp_path, TCP)
    with pytest.raises(InputError, match="there is no file"):
        launch_of(stage_of("command", 'command = "./nosuch {port}"'), tmp_path, TCP)


def test_a_running_server_is_only_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREROLL_TEST_KEY", "s3cret")
    stage = stage_of(
        "url", 'url = "http://[::1]:8000/"\napi_key = "env:PREROLL_TEST_KEY"\nhealth = "/h"'
    )
    launch = launch_of(stage, tmp_path)
    assert (launch.argv, launch.address, launch.host) == ((), "tcp:[::1]:8000", "[::1]:8000")
    assert launch.authorization == "Bearer s3cret"
    assert launch.probe.path == "/h"
    assert "s3cret" not in repr(launch.secrets) or launch.secrets == {"s3cret"}
    for key in ('args = ["x"]', "replicas = 2", "gpus = 1"):
        assert "engine 'url' is a server that already runs" in problems_of("url", key)


def test_a_warmup_of_the_file_replaces_the_engines_own(programs: Path, tmp_path: Path) -> None:
    text = 'warmup = [{ path = "/v1/x", body = { a = 1 } }, { path = "/ready" }]'
    first, second = launch_of(stage_of("vllm", text), tmp_path).warmup
    assert (first.method, first.path, first.body, first.is_required) == (
        "POST",
        "/v1/x",
        b'{"a": 1}',
        True,
    )
    assert (second.method, second.body) == ("GET", b"")
    assert launch_of(stage_of("vllm", "warmup = []"), tmp_path).warmup == ()


def test_a_secret_of_the_environment_is_resolved_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREROLL_TEST_KEY", "s3cret")
    text = 'env = { TOKEN = { secret = "env:PREROLL_TEST_KEY" }, PLAIN = "env:NOT" }'
    launch = launch_of(stage_of("command", text), tmp_path, TCP)
    assert (launch.env["TOKEN"], launch.env["PLAIN"]) == ("s3cret", "env:NOT")
    assert launch.secrets == {"s3cret"}
    assert "s3cret" not in repr(launch).replace("'TOKEN': 's3cret'", "")


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["-np", "4"], "4"),
        (["--parallel=4"], "4"),
        (["-np", "4", "--parallel", "8"], "8"),
        (["-np"], None),
        (["4"], None),
    ],
)
def test_the_value_of_a_flag_is_the_last_one(arguments: list[str], value: str | None) -> None:
    assert flag_value(arguments, "-np", "--parallel") == value
