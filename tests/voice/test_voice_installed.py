"""Says aloud that speech was not tested, where its packages are missing."""

from __future__ import annotations

import importlib.util

import pytest

CODECS = ("numpy", "av", "soxr", "onnxruntime", "silero_vad")


def test_the_packages_of_speech_are_here() -> None:
    absent = [name for name in CODECS if importlib.util.find_spec(name) is None]
    if absent:
        pytest.skip(
            f"{', '.join(absent)}: not installed, speech is not tested; run make test-voice"
        )
    from preroll.voice import silero

    assert silero.model_path().is_file()
