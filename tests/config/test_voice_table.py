"""The `[voice]` table becomes a stage with its routes."""

from __future__ import annotations

from pathlib import Path

import pytest

from preroll.config.load import load_app, parse_app
from preroll.config.problems import AppFileError

STAGES = """
[stage.stt]
engine = "python"
class = "preroll.voice.whisper:Whisper"
[stage.tts]
engine = "python"
class = "preroll.voice.speaker:Speaker"
max_concurrency = 1
[stage.llm]
engine = "url"
url = "http://127.0.0.1:9"
models = ["small"]
max_concurrency = 4
"""


def test_the_table_makes_a_stage_that_calls_the_three_and_its_routes() -> None:
    app = parse_app(STAGES + '[voice]\nmax_audio = "10m"\nmax_input_chars = 10000\n')
    voice = app.stages["voice"]
    assert voice.stage_class == "preroll.voice.service:Voice"
    assert voice.calls == ("stt", "llm", "tts")
    assert voice.options["model"] == "small"
    assert (voice.options["max_audio_s"], voice.options["max_input_chars"]) == (600.0, 10000)
    assert {r.path for r in app.routes} == {"/v1/audio/*", "/v1/talk", "/voice/*"}
    assert all(r.stage == "voice" for r in app.routes)


def test_the_service_starts_from_the_same_fork_server_as_the_example_s_models() -> None:
    stages = load_app(Path(__file__).parents[2] / "examples/voice/app.toml").stages
    imports = {stages[name].imports for name in ("stt", "tts", "voice")}
    assert len(imports) == 1
    assert imports != {()}


def test_without_the_table_there_is_nothing() -> None:
    app = parse_app(STAGES)
    assert "voice" not in app.stages
    assert app.voice is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[voice]\nstt = "hearing"', "voice.stt: there is no stage 'hearing'; allowed: stt, tts"),
        ("[voice]\nvoices = 3", "voices"),
        ('[voice]\nmax_audio = "soon"', "max_audio"),
        ('[voice]\n[stage.voice]\nengine = "url"\nurl = "http://127.0.0.1:9"', "another name"),
    ],
)
def test_a_wrong_table_is_one_error_that_says_where(table: str, message: str) -> None:
    with pytest.raises(AppFileError, match=message) as caught:
        parse_app(STAGES + table)
    assert len(caught.value.problems) == 1
