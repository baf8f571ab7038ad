"""Recorded traces: formats, order, errors; generators: grammar and counts."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from preroll.errors import InputError
from preroll.planning.servegen import clients, selected
from preroll.planning.traces import parse_trace, read_trace
from preroll.planning.workloads import duration_s, workload

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:03.9799600,4808,10
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [46, 47]}
{"timestamp": 1500, "input_length": 7322, "output_length": 490, "hash_ids": [46, 90, 91]}
"""
ACCESS = """{"t": 1764400000.25, "stage": "chat", "prompt_tokens": 12, "output_tokens": 34}
{"t": 1764400001.0, "stage": "chat"}
"""


def test_azure_rows_are_sorted_and_begin_at_zero_to_the_hundred_nanoseconds() -> None:
    trace = parse_trace(AZURE, "azure")
    assert trace.times_ns == [0, 52_000_000]
    assert (trace.prompts, trace.outputs, trace.hashes) == ([4808, 3180], [10, 8], [])


def test_mooncake_rows_keep_their_prefix_blocks() -> None:
    trace = parse_trace(MOONCAKE, "mooncake")
    assert trace.times_ns == [0, 1_500_000_000]
    assert trace.hashes == [[0, 1], [0, 2, 3]]
    assert [len(b) for b in trace.buffers()] == [16, 8, 8, 12, 20]


def test_our_access_log_may_lack_token_counts() -> None:
    trace = parse_trace(ACCESS, "access")
    assert (trace.times_ns, trace.prompts, trace.outputs) == ([0, 750_000_000], [12, 0], [34, 0])


def test_the_doors_access_log_gives_arrivals_although_it_is_written_at_the_end() -> None:
    door = (
        '{"time_s": 1764400003.5, "stage": "chat", "total_ms": 3000.0, "completion_tokens": 7}\n'
        '{"time_s": 1764400002.0, "stage": "chat", "total_ms": 500.0, "completion_tokens": null}\n'
    )
    trace = parse_trace(door, "door")
    assert (trace.times_ns, trace.outputs) == ([0, 1_000_000_000], [7, 0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "trace x is empty"),
        ("a,b\n1,2\n", "no column ContextTokens, GeneratedTokens, TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "has no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,2\n", "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,-2\n", "-2 tokens"),
        ('{"t": 1}\n{"t": \n', "line 2"),
        ('{"stage": "chat"}\n', "no field 'time_s'"),
        ('{"timestamp": 0, "input_length": 5}\n', "no field 'output_length'"),
    ],
)
def test_a_wrong_trace_names_line_and_field(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as error:
        parse_trace(text, "x")
    assert "\n" not in str(error.value)


def test_a_packed_file_is_unpacked_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    good, bad = tmp_path / "a.csv.xz", tmp_path / "b.csv.xz"
    good.write_bytes(lzma.compress(AZURE.encode()))
    bad.write_bytes(b"not xz")
    assert len(read_trace(good)) == 2
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(bad)


def test_speed_divides_the_gaps(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(AZURE)
    assert workload(str(path), speed=2.0).end_s == pytest.approx(0.026)
    with pytest.raises(InputError, match=r"speed is 0\.0"):
        workload(str(path), speed=0.0)


def test_the_built_in_traces_have_their_published_sizes() -> None:
    azure, mooncake = workload("azure-conv"), workload("mooncake")
    assert len(azure.traces[0][0]) // 8 == 19_366
    assert len(mooncake.traces[0][0]) // 8 == 12_031 and mooncake.traces[0][4]


def test_quiet_servegen_clients_are_68_of_421() -> None:
    assert (len(selected("quiet")), len(clients())) == (68, 421)
    one = selected("m-small/0")
    assert list(one) == [("m-small", 0)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("poisson", "poisson needs rate="),
        ("poisson:rate=fast", "rate is 'fast', not a number"),
        ("poisson:rate=1,speed=2", "no option 'speed'; it has for, rate"),
        ("poisson:rate", "'rate' is not key=value"),
        ("poisson:rate=1,for=2weeks", "durations are written as 300ms"),
        ("spike:base=1,peak=2,gaps=odd", "gaps are 'odd'"),
        ("servegen:m-huge", "servegen has no 'm-huge'"),
        ("servegen:m-large/1,for=1s", "no request in the first 1 s"),
        ("nosuch.csv", "neither a file nor one of"),
    ],
)
def test_a_wrong_workload_says_what_there_is(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        workload(text)


def test_durations() -> None:
    assert [duration_s(t, "x") for t in ("300ms", "5", "2m", "1.5h", "14d", "3us")] == [
        0.3,
        5.0,
        120.0,
        5400.0,
        1_209_600.0,
        3e-6,
    ]
