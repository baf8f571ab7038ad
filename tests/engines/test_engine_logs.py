"""Log lines of third-party engines, written from their documented formats, become waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from preroll.core import Wait
from preroll.engines.base import ENGINES, get_engine
from preroll.engines.bill import Line, bill
from preroll.instruments.starts_text import waits

LOGS = Path(__file__).with_name("logs")
"""Rows of `SECONDS LINE`: when a holder would have stamped the line, and the line."""


def seconds(engine: str, log: str, ready: float) -> dict[str, float]:
    stamped = []
    for row in (LOGS / f"{log}.log").read_text().splitlines():
        moment, _, text = row.partition(" ")
        stamped.append(Line(round(float(moment) * 1e9), text.lstrip()))
    start = bill("r", "s", 0, round(ready * 1e9), stamped, get_engine(engine).marks)
    found = {wait.value: round(ns / 1e9, 3) for wait, ns in waits(start).items() if ns}
    assert sum(found.values()) == pytest.approx(ready)
    return found


def test_vllm_on_a_gpu() -> None:
    found = seconds("vllm", "vllm_gpu", 132.5)
    assert found["fetch"] == 5.0
    assert found["load"] == pytest.approx(1 + 26 + 1)
    assert found["compile"] == pytest.approx(8.5 + 31.5 + 1.5 + 36)


def test_vllm_eager_on_a_cpu_is_mostly_imports() -> None:
    found = seconds("vllm", "vllm_cpu_eager", 22.6)
    assert found["load"] == pytest.approx(0.2)
    assert found["init"] == pytest.approx(22.4)
    assert "compile" not in found


def test_sglang_with_two_ranks_and_two_kinds_of_graphs() -> None:
    found = seconds("sglang", "sglang", 65.5)
    assert (found["load"], found["compile"]) == (9.0, 13.0 + 18.0)
    assert found["warm"] == pytest.approx(65.5 - 62.2)


def test_sglang_as_it_said_it_two_years_ago() -> None:
    found = seconds("sglang", "sglang_2024", 47.5)
    assert (found["load"], found["compile"]) == (8.0, 13.0)
    assert found["warm"] == pytest.approx(3.5)


def test_trtllm_tunes_and_captures_twice() -> None:
    found = seconds("trtllm", "trtllm", 125.5)
    assert found["load"] == 48.0
    assert found["compile"] == pytest.approx(116.5 - 76.5 + 123.0 - 118.0)


def test_llamacpp() -> None:
    found = seconds("llama.cpp", "llamacpp", 0.85)
    assert found["load"] == pytest.approx(0.65)
    assert found["init"] == pytest.approx(0.18)


def test_an_asgi_application_loads_between_the_lines_of_its_server() -> None:
    assert seconds("asgi", "uvicorn", 3.6)["load"] == 3.0


def test_no_engine_uses_a_wait_that_preroll_bills_itself() -> None:
    for name in ENGINES:
        for mark in get_engine(name).marks:
            assert Wait.NODE not in (mark.then, mark.ended)
            assert Wait.IMAGE not in (mark.then, mark.ended)
