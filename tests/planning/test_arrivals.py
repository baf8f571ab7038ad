"""Traces and access logs: every format read, every damage named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preroll.errors import InputError
from preroll.planning import arrivals

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,4808,10\n"
    "2023-11-16 18:17:05.9799600,3180,30\n"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [0]}\n'
    '{"timestamp": 3000, "input_length": 300, "output_length": 15, "hash_ids": []}\n'
)
DOOR = '{"t_ns": 5000000000, "status": 200}\n\n{"t_ns": 2000000000, "status": 200}\n'
COMMON = (
    '10.0.0.1 - - [29/Nov/2026:13:00:00 +0000] "GET / HTTP/1.1" 200 5\n'
    '10.0.0.1 - - [29/Nov/2026:14:00:20 +0100] "GET / HTTP/1.1" 200 5\n'
)


def write(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "gap", "isl", "osl"),
    [
        (AZURE, 2.0, 3994.0, 20.0),
        (MOONCAKE, 3.0, 200.0, 10.0),
        (DOOR, 3.0, None, None),
        (COMMON, 20.0, None, None),
        ('{"time": 1764421200.5}\n{"time": 1764421201000.0}\n', 0.5, None, None),
        ('{"ts": "2026-11-29T13:00:00Z"}\n{"ts": "2026-11-29T13:00:07Z"}\n', 7.0, None, None),
        ("t,prompt_tokens\n0,10\n60,\n", 60.0, 10.0, None),
    ],
    ids=["azure", "mooncake", "door", "common-log", "mixed-units", "iso", "plain-csv"],
)
def test_a_known_format_gives_its_gaps(
    tmp_path: Path, text: str, gap: float, isl: float | None, osl: float | None
) -> None:
    found = arrivals.read(write(tmp_path, text))
    assert found.gaps_s == (pytest.approx(gap),)
    assert found.rate == pytest.approx(1 / gap)
    assert (found.isl, found.osl) == (isl, osl)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "0 arrivals"),
        ('{"t_ns": 1}\n', "1 arrivals"),
        ('{"t_ns": 1}\n{"t_ns"\n', "record 2"),
        ('{"t_ns": 1}\n[1]\n', "record 2"),
        ('{"t_ns": -1}\n{"t_ns": 2}\n', "record 1"),
        ('{"t_ns": NaN}\n', "record 1"),
        ('{"status": 200}\n', "no time"),
        ("a,b\n1,2\n", "no time"),
        ("t,tokens_in\n1,many\n", "record 1"),
        (COMMON + "garbage\n", "record 3"),
    ],
)
def test_damage_is_one_error_that_names_the_record(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        arrivals.read(write(tmp_path, text))


def test_a_missing_file_and_a_binary_one_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        arrivals.read(tmp_path / "none")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(InputError):
        arrivals.read(tmp_path / "binary")


def test_burstiness_is_zero_for_a_clock_and_high_for_bursts(tmp_path: Path) -> None:
    clock = "t\n" + "".join(f"{t}\n" for t in range(100))
    assert arrivals.read(write(tmp_path, clock)).ca == pytest.approx(0)
    bursts = "t\n" + "".join(f"{1000 * (t // 10) + t % 10 * 0.01}\n" for t in range(100))
    assert arrivals.read(write(tmp_path, bursts)).ca > 2


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_give_arrivals_or_an_input_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "fuzz").write_bytes(data)
    try:
        assert arrivals.read(tmp_path / "fuzz").times_s
    except InputError as error:
        assert str(error)
