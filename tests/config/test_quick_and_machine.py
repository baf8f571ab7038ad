"""Apps without a file, secrets by reference, and what a machine cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from preroll.config import AppFileError, parse_app
from preroll.config.machine import Machine, misfits, this_machine
from preroll.config.quick import STAGE, quick_app
from preroll.config.secrets import key_sha256, resolve_secret
from preroll.errors import InputError

SMALL = Machine(cpus=2, memory_bytes=4 << 30, gpus=0)


def test_an_engine_and_a_model_make_an_app() -> None:
    app = quick_app("vllm", "org/model", ["--max-num-seqs", "4"], serve={"listen": "127.0.0.1:0"})
    stage = app.stages[STAGE]
    assert (stage.engine, stage.model, stage.args) == (
        "vllm",
        "org/model",
        ("--max-num-seqs", "4"),
    )
    assert app.serve.listen == ("127.0.0.1:0",)
    assert app.directory == Path.cwd()


def test_a_command_is_what_follows_the_dashes() -> None:
    app = quick_app("command", None, ["python", "-m", "http.server", "{port}"])
    assert app.stages[STAGE].command == ("python", "-m", "http.server", "{port}")


def test_a_url_and_an_application_have_their_own_keys() -> None:
    assert quick_app("url", "http://127.0.0.1:9").stages[STAGE].url == "http://127.0.0.1:9"
    assert quick_app("asgi", "a.b:app").stages[STAGE].app == "a.b:app"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("vlm", "x"), "unknown engine 'vlm'; allowed: llama.cpp, vllm"),
        (("vllm", None), "needs its target: preroll serve vllm ORG/MODEL"),
        (("command", None), "takes its program after --"),
        (("command", "x", ["y"]), "takes its program after --"),
        (("vllm", "x", ["--port=1"]), "'--port' is set by Preroll for engine 'vllm'"),
        (("command", None, ["x"]), "put {port} or {socket} in it"),
    ],
)
def test_a_wrong_command_line_says_what_is_right(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError) as raised:
        quick_app(*arguments)  # type: ignore[arg-type]
    assert said in str(raised.value)


def test_a_secret_is_read_from_environment_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREROLL_TEST_SECRET", "s3cret")
    (tmp_path / "key").write_text("other\n")
    assert resolve_secret("env:PREROLL_TEST_SECRET", tmp_path) == "s3cret"
    assert resolve_secret("file:key", tmp_path) == "other"
    for reference in ("env:PREROLL_TEST_NONE", "file:none"):
        with pytest.raises(InputError, match=reference):
            resolve_secret(reference, tmp_path)


def test_a_key_is_the_digest_of_the_secret_behind_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("abc\n")
    app = parse_app(
        '[serve]\nkeys = [{ id = "a", key = "file:key" }]\n'
        '[stage.a]\nengine = "url"\nurl = "http://127.0.0.1:1"\n',
        tmp_path / "app.toml",
    )
    assert key_sha256(app.serve.keys[0], tmp_path).startswith("ba7816bf8f01cfea")


def test_what_a_machine_lacks_is_named_with_what_it_has() -> None:
    app = parse_app(
        '[stage.a]\nengine = "command"\ncommand = "true {port}"\ngpus = 8\ncpus = 64\n'
        'memory = "1TiB"\n[stage.b]\nengine = "command"\ncommand = "nosuchprogram {port}"\n'
        'gpu_memory = "8GiB"\n'
    )
    found = "\n".join(misfits(app, SMALL))
    assert "stage.a.gpus: 8; this machine has 0" in found
    assert "stage.a.cpus: 64; this machine has 2" in found
    assert "stage.a.memory: 1TiB; this machine has 4GiB" in found
    assert "stage.b.gpu_memory: this machine has no GPU" in found
    assert "'nosuchprogram': no such program on PATH" in found


def test_secrets_and_certificates_that_are_not_here_are_named(tmp_path: Path) -> None:
    app = parse_app(
        '[serve]\nadmin_token = "env:PREROLL_TEST_NONE"\n'
        'keys = [{ id = "a", key = "file:none" }]\ntls = { cert = "c.pem", key = "k.pem" }\n'
        '[stage.a]\nengine = "url"\nurl = "http://127.0.0.1:1"\n',
        tmp_path / "app.toml",
    )
    found = misfits(app, SMALL)
    assert [line.partition(": ")[0] for line in found] == [
        "serve.keys 'a'",
        "serve.admin_token",
        "serve.tls.cert",
        "serve.tls.key",
    ]


def test_devices_are_counted_over_all_stages() -> None:
    stage = '[stage.{0}]\nengine = "command"\ncommand = "true {{port}}"\ngpus = 3\n'
    app = parse_app(stage.format("a") + stage.format("b"))
    assert misfits(app, Machine(2, 1 << 30, 8)) == []
    assert "6 GPUs in all" in misfits(app, Machine(2, 1 << 30, 4))[0]


def test_this_machine_has_something_to_give() -> None:
    machine = this_machine()
    assert machine.cpus >= 1
    assert machine.memory_bytes > 1 << 20


def test_more_than_a_machine_has_is_no_error_of_the_file() -> None:
    parse_app('[stage.a]\nengine = "command"\ncommand = "x {port}"\ngpus = 1000\n')
    with pytest.raises(AppFileError, match="at most 1024"):
        parse_app('[stage.a]\nengine = "command"\ncommand = "x {port}"\ngpus = 2000\n')
