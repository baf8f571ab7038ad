"""The raw file is valid after every launch, whenever its writer dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from preroll.core import Gap, Phase, Start, Wait
from preroll.errors import InputError, UnavailableError
from preroll.instruments import starts
from preroll.instruments.raw_lines import Header
from preroll.instruments.starts_raw import Launched, RawFile

HEADER = Header({"run": 3, "argv": ["x"]}, {"device": "d"})


def made(number: int) -> Start:
    phases = (Phase(Wait.INIT, "spawn", 0, number), Phase(Wait.LOAD, "ü\n", number, 2 * number))
    return Start(f"run-{number}", "run", 0, 2 * number, phases, gap=Gap(0, number, "spawn"))


async def launch(number: int) -> Start:
    return made(number)


@pytest.fixture
def raw(tmp_path: Path) -> RawFile:
    return RawFile(tmp_path / "raw.jsonl", HEADER)


def test_every_launch_is_on_disk_before_the_next(raw: RawFile) -> None:
    seen: list[int] = []

    async def looking(number: int) -> Start:
        assert len(RawFile.read(raw.path)[1]) == number - 1
        return made(number)

    asyncio.run(starts.run(3, looking, raw, lambda launched: seen.append(launched.run)))
    header, launches = RawFile.read(raw.path)
    assert header == HEADER
    assert [launched.start for launched in launches] == [made(1), made(2), made(3)]
    assert seen == [1, 2, 3]


def test_an_interrupted_experiment_goes_on_where_it_was(raw: RawFile) -> None:
    asyncio.run(starts.run(2, launch, raw, lambda _: None))
    raw.close()
    again = RawFile.resume(raw.path)
    assert again.header == HEADER
    asyncio.run(starts.run(5, launch, again, lambda _: None))
    assert [launched.run for launched in RawFile.read(raw.path)[1]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_line_that_was_cut_off_is_dropped(raw: RawFile, cut: int) -> None:
    asyncio.run(starts.run(3, launch, raw, lambda _: None))
    raw.close()
    raw.path.write_bytes(raw.path.read_bytes()[:-cut])
    assert len(RawFile.read(raw.path)[1]) == 2
    again = RawFile.resume(raw.path)
    asyncio.run(starts.run(3, launch, again, lambda _: None))
    assert [launched.run for launched in RawFile.read(raw.path)[1]] == [1, 2, 3]


def test_a_failed_launch_is_kept_and_not_counted(raw: RawFile) -> None:
    async def flaky(number: int) -> Start:
        if number == 2:
            raise UnavailableError("it broke")
        return made(number)

    asyncio.run(starts.run(3, flaky, raw, lambda _: None))
    assert [launched.failure for launched in RawFile.read(raw.path)[1]] == [
        None,
        "it broke",
        None,
        None,
    ]
    assert starts.totals_s(raw.samples) == [made(n).total_s for n in (1, 3, 4)]


def test_launches_that_keep_failing_end_with_the_cause_last(raw: RawFile) -> None:
    async def broken(number: int) -> Start:
        raise UnavailableError("how\n  the cause")

    with pytest.raises(UnavailableError) as raised:
        asyncio.run(starts.run(9, broken, raw, lambda _: None))
    assert str(raised.value).endswith("the cause")
    assert len(raw.samples) == starts.MAX_FAILURES


def test_an_existing_file_is_never_overwritten(raw: RawFile) -> None:
    with pytest.raises(InputError, match="--resume"):
        RawFile(raw.path, HEADER)


@pytest.mark.parametrize("content", ["", "{}\n", "nonsense\n", '{"format": "other"}\n', "3\n"])
def test_another_kind_of_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text(content)
    with pytest.raises(InputError, match="not a file of preroll starts"):
        RawFile.resume(path)
    with pytest.raises(InputError, match="cannot be read"):
        RawFile.read(tmp_path / "none")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        RawFile(tmp_path / "no" / "raw", HEADER)


def test_a_launch_without_start_says_so() -> None:
    assert Launched(1, "d").start is None
