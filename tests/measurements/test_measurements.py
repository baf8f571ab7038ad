"""The measured file: written whole and in one order, read strictly, matched by fingerprint."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll import measurements
from preroll.core import Fingerprint, Measurement
from preroll.errors import InputError

PRINT = Fingerprint("2x NVIDIA H200", "nvidia 580.1", "vllm", "0.32.0", ("--a", "b c"), "ab" * 32)
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def entry(stage: str = "chat", value: float = 2.0, **changes: object) -> Measurement:
    base = measurements.of_starts(stage, [value, value + 1, value - 1], PRINT, NOW)
    return dataclasses.replace(base, **changes)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "app.measured.toml"
    entries = [entry("b", extra={"cliff": 8.0}), entry("a", low=1.0, high=3.5), entry("ü\n\"'\\")]
    measurements.write(path, entries)
    assert sorted(measurements.read(path), key=lambda m: m.stage) == sorted(
        entries, key=lambda m: m.stage
    )


def test_the_order_of_entries_does_not_change_the_file(tmp_path: Path) -> None:
    one, two = tmp_path / "1.toml", tmp_path / "2.toml"
    measurements.write(one, [entry("a"), entry("b")])
    measurements.write(two, [entry("b"), entry("a")])
    assert one.read_bytes() == two.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.toml", "2.toml"]


text = st.text(max_size=20)


@given(text, st.lists(text, max_size=3), st.floats(allow_nan=False, allow_infinity=False))
def test_any_text_and_number_survives(stage: str, args: list[str], value: float) -> None:
    import tempfile

    printed = dataclasses.replace(PRINT, args=tuple(args), device=stage)
    written = entry(stage, fingerprint=printed, value=value)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.toml"
        measurements.write(path, [written])
        assert measurements.read(path) == [written]


def test_no_file_is_no_measurements(tmp_path: Path) -> None:
    assert measurements.read(tmp_path / "none.toml") == []


@pytest.mark.parametrize(
    "content",
    ["x", "version = 2", "version = 1\nmeasurement = 3", "version = 1\n[[measurement]]", "\xff"],
)
def test_a_damaged_file_is_named_with_what_to_do(content: str, tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match="remove"):
        measurements.read(path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.toml"
    measurements.write(path, [entry("a")])
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        measurements.write(path, [entry("b")])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.toml"]


def test_an_entry_replaces_its_like_only() -> None:
    other = dataclasses.replace(PRINT, engine_version="0.33.0")
    entries = measurements.put([entry("a", 2.0), entry("b", 2.0)], entry("a", 9.0))
    assert [(m.stage, m.value) for m in entries] == [("b", 2.0), ("a", 9.0)]
    assert len(measurements.put(entries, entry("a", fingerprint=other))) == 3


def test_a_matching_entry_is_used_and_its_age_said() -> None:
    match = measurements.match([entry()], "chat", "start", PRINT)
    assert match.current == entry()
    later = NOW + timedelta(days=3, hours=2)
    assert match.sentence(later) == "start 2 s, 3 samples, 3 d old"


def test_a_stale_entry_is_not_used_and_says_what_changed() -> None:
    now = dataclasses.replace(PRINT, engine_version="0.33.0", args=())
    match = measurements.match([entry()], "chat", "start", now)
    assert match.current is None
    sentence = match.sentence(NOW + timedelta(hours=5))
    assert "is stale (5 h old)" in sentence
    assert "engine_version was '0.32.0', now '0.33.0'" in sentence
    assert "args was '--a b c', now ''" in sentence


def test_another_stage_or_kind_does_not_match() -> None:
    assert measurements.match([entry("a")], "b", "start", PRINT).sentence(NOW) == "not measured"
    assert measurements.match([entry("a")], "a", "cliff", PRINT).current is None


def test_the_newest_matching_entry_wins() -> None:
    old = entry(value=9.0, date="2026-01-01T00:00:00+00:00")
    match = measurements.match([entry(value=3.0), old], "chat", "start", PRINT)
    assert match.current is not None
    assert match.current.value == 3.0


def test_a_date_that_cannot_be_read_is_no_error() -> None:
    assert measurements.age(entry(date="yesterday"), NOW) == "unknown age"
    assert measurements.age(entry(date="2026-11-29T11:58:30"), NOW) == "1 min"
    assert measurements.age(entry(date="2027-01-01T00:00:00+00:00"), NOW) == "0 s"


def test_starts_become_a_median_with_its_interval() -> None:
    measured = measurements.of_starts("a", [5, 1, 2, 3, 4, 6, 7, 8], PRINT, NOW)
    assert (measured.value, measured.low, measured.high) == (4.5, 1.0, 8.0)
    assert measured.samples == (5, 1, 2, 3, 4, 6, 7, 8)
    assert measurements.of_starts("a", [1.0], PRINT, NOW).low is None


def test_the_file_lies_beside_the_app_file() -> None:
    assert measurements.measured_path(Path("/x/app.toml")) == Path("/x/app.measured.toml")
