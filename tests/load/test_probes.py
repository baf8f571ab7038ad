"""Determinism and ingress: planted faults are found, and a sound server is not accused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from preroll.cli.load_inputs import get
from preroll.cli.probe import main
from preroll.errors import InputError, RefusedError
from preroll.instruments import determinism, ingress
from preroll.instruments.load.client import Mock
from preroll.instruments.load.requests import Ask, parse_url
from preroll.instruments.load.text import prompts

Start = Callable[..., Mock]
QUICK = determinism.Settings(levels=(2, 8), answers=120, max_tokens=8, model="mock")


def run(url: str, settings: determinism.Settings = QUICK) -> determinism.Report:
    return determinism.probe(parse_url(url), prompts(3, 8), settings, {})


def test_a_deterministic_server_diverges_in_no_answer(mock: Start) -> None:
    report = run(mock(ttft_ms=2).url)
    assert report.verdict() == "no divergence was seen"
    assert [level.share.value for level in report.levels] == [0.0, 0.0]


def test_planted_batch_dependence_is_found_at_its_rate(mock: Start) -> None:
    url = mock(ttft_ms=10, flip_rate=0.2, flip_above=4, seed=5).url
    report = run(
        url,
        determinism.Settings(levels=(2, 12), answers=400, max_tokens=8, model="mock"),
    )
    low, high = report.levels
    assert low.share.value == 0.0
    flipped = json.loads(get(parse_url(url), "/stats")[1])["flipped"]
    assert len(high.divergences) == flipped
    assert 0.1 < high.share.value < 0.3 and high.share.low < high.share.value < high.share.high
    assert report.replays_agree
    assert "agrees again alone" in report.verdict()
    # A changed token starts where the tokens before it end: "tok0 tok1 …" is five characters each.
    assert {d.position % 5 for d in high.divergences} == {0}


def test_a_server_that_differs_alone_is_said_to(mock: Start) -> None:
    report = run(mock(flip_rate=0.5, flip_above=0).url)
    assert report.verdict() == "not deterministic even alone" and report.levels == ()


def test_another_server_is_compared_with_the_first(mock: Start) -> None:
    first, second = parse_url(mock().url), parse_url(mock(tokens_per_event=2).url)
    other = parse_url(mock(flip_rate=1.0, flip_above=0).url)
    same = determinism.probe(first, prompts(2, 8), QUICK, {}, against=(second, "mock"))
    assert same.against is not None and not same.against.divergences
    differs = determinism.probe(first, prompts(2, 8), QUICK, {}, against=(other, "mock"))
    assert "answer differently" in differs.verdict()


def test_a_server_that_fails_is_refused_instead_of_judged(mock: Start) -> None:
    with pytest.raises(RefusedError, match="cannot be compared"):
        run(mock(mode="error_after").url)


def test_the_margin_is_that_of_the_token_at_the_difference() -> None:
    def token(text: str, second: float) -> dict[str, object]:
        best = {"token": text, "logprob": -0.1}
        return {**best, "top_logprobs": [best, {"token": "x", "logprob": second}]}

    tokens = [token("The ", -3.0), token("cat", -0.12), token(" sat", -1.0)]
    assert determinism.margin_at(tokens, 4) == pytest.approx(0.02)
    assert determinism.margin_at(tokens, 0) == pytest.approx(2.9)
    assert determinism.margin_at(tokens, 99) is None
    assert determinism.common_prefix("The cat", "The cow") == 5


def test_a_wide_margin_is_called_corruption() -> None:
    share = determinism.share_interval(1, 10)
    level = determinism.Level(8, 10, share, (determinism.Divergence(0, 3),))
    close = determinism.Report(1, True, (level,), True, (0.01,))
    wide = determinism.Report(1, True, (level,), True, (4.0,))
    assert "batch" in close.verdict() and "corruption" in wide.verdict()
    assert "corrupted" in determinism.Report(1, True, (level,), False).verdict()


def test_the_same_server_on_both_sides_is_not_in_its_own_way(mock: Start) -> None:
    # Chunks far apart: on a busy machine two that follow closely are read at once on either side.
    server = parse_url(mock(ttft_ms=20, gap_ms=30).url)
    report = ingress.probe(server, server, Ask(model="mock", max_tokens=4), (1, 8), 16)
    assert not [f for f in report.findings() if not f.startswith("handshakes")]


def test_a_front_that_serves_one_at_a_time_is_found(mock: Start) -> None:
    server = parse_url(mock(ttft_ms=20, tokens=2).url)
    front = parse_url(mock(servers=1, service="constant", service_ms=20, tokens=2).url)
    report = ingress.probe(front, server, Ask(model="mock", max_tokens=2), (1, 8), 60)
    assert any("serialisation" in f for f in report.findings())
    assert report.levels[-1].added_ms > 60


def test_a_front_that_holds_chunks_back_is_found(mock: Start) -> None:
    server = parse_url(mock(ttft_ms=5, gap_ms=10).url)
    front = parse_url(mock(mode="coalesced", ttft_ms=5, gap_ms=10).url)
    report = ingress.probe(front, server, Ask(model="mock", max_tokens=8), (2,), 20)
    assert any(f.startswith("buffering") for f in report.findings())


def test_the_commands_print_and_exit(
    mock: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = mock(ttft_ms=2).url
    options = ["--levels", "2", "--answers", "20", "--max-tokens", "4"]
    assert main(["determinism", url, *options]) == 0
    assert "no divergence" in capsys.readouterr().out
    file = tmp_path / "ingress.json"
    options = ["--past", url, "--connections", "1", "--requests", "10", "--out", str(file)]
    assert main(["ingress", url, *options]) == 0
    assert json.loads(file.read_text())["levels"][0]["connections"] == 1
    with pytest.raises(InputError, match="whole numbers"):
        main(["determinism", url, "--levels", "two"])
