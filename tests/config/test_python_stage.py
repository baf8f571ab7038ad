"""The keys of `engine = "python"`: what is read, the graph of calls, batches against limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from preroll.config import AppFileError, parse_app
from preroll.config.calls import find_cycle

SOURCE = """
import preroll


class Embed(preroll.Stage):
    @preroll.batch(max_size=32, max_wait=0.01)
    async def __call__(self, items): ...

    @preroll.inflight(max_size=4)
    async def other(self, items): ...

class Plain(preroll.Stage):
    async def __call__(self, body): ...
"""


def stages(**calls: list[str]) -> str:
    return "".join(
        f'[stage.{name}]\nengine = "python"\nclass = "app:Plain"\ncalls = {called}\n'
        for name, called in calls.items()
    )


def rejected(text: str, path: Path = Path("app.toml")) -> str:
    with pytest.raises(AppFileError) as raised:
        parse_app(text, path)
    return str(raised.value)


def test_a_python_stage_is_read_with_its_units() -> None:
    text = """
[stage.codec]
engine = "python"
class = "voice.codec:Codec"
options = { rate = 24000, voices = ["a"], deep = { on = true } }
imports = ["numpy", "scipy.signal"]
python = "env/bin/python"
calls = ["llm"]
frame = "20ms"
slo = { pace = "40ms" }

[stage.llm]
engine = "url"
url = "http://127.0.0.1:1"

[[route]]
path = "/video"
stage = "codec"
frame = "40ms"
"""
    app = parse_app(text, Path("app.toml"))
    codec = app.stages["codec"]
    assert (codec.stage_class, codec.calls) == ("voice.codec:Codec", ("llm",))
    assert codec.options == {"rate": 24000, "voices": ["a"], "deep": {"on": True}}
    assert (codec.frame_s, codec.slo.pace_s, app.routes[0].frame_s) == (0.02, 0.04, 0.04)
    assert codec.imports == ("numpy", "scipy.signal")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('class = "app"', 'allowed: "module:Class"'),
        ("options = { at = 2026-11-29 }", "allowed: text, numbers"),
        ("options = { x = nan }", "allowed: text, numbers"),
        ('imports = ["a-b"]', "'a-b' is no module"),
        ('args = ["--x"]', "a class takes no flags; use options"),
        ('env = { PREROLL_WORKER = "{}" }', "is set by Preroll"),
        ('calls = ["b"]', "there is no stage 'b'; allowed: none: it is the only stage"),
        ('calls = ["a"]', "the calls a → a make a cycle"),
        ('frame = "0ms"', "allowed: above 0"),
        ('colocate = ["b"]', "unknown key 'colocate'"),
    ],
)  # fmt: skip
def test_a_wrong_python_stage_says_what_is_allowed(line: str, said: str) -> None:
    target = "" if line.startswith("class") else 'class = "app:Plain"\n'
    text = rejected(f'[stage.a]\nengine = "python"\n{target}{line}\n')
    assert said in text


def test_a_cycle_of_calls_is_named_whole_and_placed() -> None:
    text = rejected(stages(front=["llm"], llm=["codec"], codec=["tts", "llm"], tts=[]))
    assert "app.toml:8:10 stage.llm.calls[0]: the calls llm → codec → llm make a cycle" in text


def test_calls_that_meet_again_are_no_cycle() -> None:
    text = stages(front=["left", "right"], left=["end"], right=["end"], end=[])
    assert parse_app(text, Path("app.toml")).stages["front"].calls == ("left", "right")
    assert find_cycle({}) == []
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["a"]}) == ["a", "b", "c", "a"]


def test_a_called_stage_is_looked_for_with_a_hint() -> None:
    assert "did you mean 'codec'?" in rejected(stages(front=["codek", "codec", "codec"], codec=[]))
    assert "'codec' is given twice" in rejected(stages(front=["codec", "codec"], codec=[]))


def test_a_limit_below_a_batch_is_refused_without_running_the_source(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SOURCE + "\nraise SystemExit('it was run')\n")
    path = tmp_path / "app.toml"
    embed = '[stage.embed]\nengine = "python"\nclass = "app:Embed"\n'
    said = rejected(embed + "max_concurrency = 8\n", path)
    assert "max_concurrency: 8 is below max_size=32 of Embed.__call__ (line 7)" in said
    assert "the default, 16, is below max_size=32" in rejected(embed, path)
    assert parse_app(embed + "max_concurrency = 32\n", path).stages["embed"].max_concurrency == 32
    plain = '[stage.embed]\nengine = "python"\nclass = "app:Plain"\nmax_concurrency = 1\n'
    parse_app(plain, path)


@pytest.mark.parametrize("source", [None, "class (", "\0", "Embed = object"])
def test_source_that_cannot_be_read_is_left_to_the_worker(
    tmp_path: Path, source: str | None
) -> None:
    if source is not None:
        (tmp_path / "app.py").write_text(source)
    text = '[stage.a]\nengine = "python"\nclass = "app:Embed"\nmax_concurrency = 1\n'
    parse_app(text, tmp_path / "app.toml")
