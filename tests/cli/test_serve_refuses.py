"""What `preroll serve` refuses before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from preroll.cli import serve
from preroll.errors import InputError


def refused(text: str, folder: Path) -> str:
    file = folder / "app.toml"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        serve.main([str(file), "--state", str(folder / "state")])
    assert not (folder / "state").exists()
    return str(raised.value)


def test_more_devices_than_the_machine_has(tmp_path: Path) -> None:
    text = '[stage.a]\nengine = "command"\ncommand = "true {port}"\ngpus = 1000\n'
    assert "stage.a.gpus: 1000; this machine has" in refused(text, tmp_path)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    text = '[stage.a]\nengine = "llama.cpp"\nmodel = "none.gguf"\n'
    assert "there is no file" in refused(text, tmp_path)


def test_an_engine_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = '[stage.a]\nengine = "trtllm"\nmodel = "org/model"\n'
    assert "'trtllm-serve' is not installed; install TensorRT-LLM" in refused(text, tmp_path)


def test_a_secret_that_is_not_set(tmp_path: Path) -> None:
    text = '[serve]\nkeys = [{ id = "a", key = "env:PREROLL_TEST_NONE" }]\n'
    text += '[stage.a]\nengine = "url"\nurl = "http://127.0.0.1:1"\n'
    assert "the environment variable PREROLL_TEST_NONE is not set" in refused(text, tmp_path)


def test_a_typing_error_is_no_bare_key_error(tmp_path: Path) -> None:
    text = '[stage.a]\nengin = "url"\nurl = "http://127.0.0.1:1"\n'
    message = refused(text, tmp_path)
    assert "unknown key 'engin'" in message
    assert "did you mean 'engine'?" in message
    assert "missing key 'engine'" in message
