"""The page about the app file names every key, and its example is a right one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from preroll.config import parse_app
from preroll.config.problems import allowed_keys
from preroll.config.schema import (
    AccessLog,
    Key,
    Limits,
    Queue,
    Route,
    Scale,
    Serve,
    SloTable,
    Stage,
    Table,
    Tls,
    Warmup,
)

PAGE = (Path(__file__).parents[2] / "docs" / "app-file.md").read_text()
TABLES = (AccessLog, Key, Limits, Queue, Route, Scale, Serve, SloTable, Stage, Tls, Warmup)


@pytest.mark.parametrize("table", TABLES)
def test_every_key_is_on_the_page(table: type[Table]) -> None:
    documented = set(re.findall(r"`([a-z_0-9]+)`", PAGE)) | set(re.findall(r"(\w+) = ", PAGE))
    assert set(allowed_keys(table)) <= documented


def test_the_example_is_right(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "warm.json").write_text("{}")
    assert parse_app(example, tmp_path / "app.toml").stages["chat"].queue.max_wait_s == 2.0


def test_the_defaults_on_the_page_are_those_of_the_types() -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| `limits`")]
    said = re.findall(r'`"?(\w+)"?`', row.rpartition("|")[0].rpartition("|")[2])
    limits = Limits.model_validate({})
    assert said == ["64KiB", "15s", "64MiB", "256MiB", "60s", "10000", "2s"]
    assert (limits.head_bytes, limits.body_bytes) == (64 << 10, 64 << 20)
    assert (limits.body_budget_bytes, limits.connections) == (256 << 20, 10_000)
