"""Whatever the text is, the parser answers with an app or with a report, never a traceback."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from preroll.config import App, AppFileError, parse_app
from preroll.config.units import format_duration, format_size, parse_duration, parse_size

KEYS = re.findall(
    r"\S+",
    "stage serve route engine model models args env command app url port api_key cwd pty gpus "
    "gpu_memory cpus memory max_concurrency queue slo replicas scale warmup health listen admin "
    "keys tls limits access_log path timeout priority id sha256 key secret min max idle_timeout "
    "prewarm max_wait calls weights (name) (path) name",
)
VALUES = re.findall(
    r"\S+",
    '"vllm" "llama.cpp" "command" "url" "asgi" "sglang" "trtllm" "" "x" "{port}" "env:X" "file:" '
    '"http://h:1" "http://[" "2s" "1GiB" "a:b" "/x" "/x/*" "127.0.0.1:1" "Mon" true 0 '
    "-1 1 1.5 nan inf 9223372036854775807 1979-05-27 07:32:00 [] {} [[]] ['\\ud7ff'] \"'\"",
)

names = st.sampled_from(KEYS) | st.text(max_size=4)
keys = names.map(lambda k: k if re.fullmatch(r"[A-Za-z0-9_-]+", k) else '"' + escaped(k) + '"')
values = st.recursive(
    st.sampled_from(VALUES) | st.text(max_size=6).map(lambda t: '"' + escaped(t) + '"'),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda v: "[" + ", ".join(v) + "]")
        | st.dictionaries(keys, inner, max_size=3).map(
            lambda d: "{ " + ", ".join(f"{k} = {v}" for k, v in d.items()) + " }"
        )
    ),
    max_leaves=6,
)
heads = st.sampled_from(["[serve]", "[stage.a]", "[stage.b]", "[[route]]", "[stage]", "[a.b]"])
pairs = st.builds(lambda k, v: f"{k} = {v}", keys, values)
texts = st.lists(heads | pairs, max_size=12).map("\n".join)


def escaped(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in text)


def answer(text: str) -> App | str:
    try:
        return parse_app(text, Path("app.toml"))
    except AppFileError as error:
        return str(error)


@settings(max_examples=400, deadline=None)
@given(texts)
def test_structured_text_gets_an_app_or_a_report(text: str) -> None:
    result = answer(text)
    assert isinstance(result, App) or all(
        line.startswith("app.toml:") for line in result.split("\n")
    )


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_gets_an_app_or_a_report(text: str) -> None:
    assert isinstance(answer(text), (App, str))


def test_deep_nesting_gets_a_report() -> None:
    assert isinstance(answer("a = " + "[" * 5000), str)
    assert isinstance(answer("a" + ".a" * 3000 + " = 1"), str)
    assert isinstance(answer("[stage.a]\nwarmup = " + "[" * 50 + "]" * 50), str)


@given(st.integers(min_value=0, max_value=366 * 86400 * 1000))
def test_durations_are_read_back_as_written(milliseconds: int) -> None:
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@given(st.integers(min_value=1, max_value=2**53))
def test_sizes_are_read_back_as_written(num_bytes: int) -> None:
    assert parse_size(format_size(num_bytes)) == num_bytes
