"""Pre-warm schedules: days, zones, and clocks that change."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from preroll.config.schedule import parse_schedule

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def following(schedule: str, after: str) -> str:
    moment = parse_schedule(schedule).next_after(at(after))
    return datetime.fromtimestamp(moment, BERLIN).isoformat()


def test_the_next_working_day_is_found_over_a_weekend() -> None:
    schedule = "Mon-Fri 07:55 Europe/Berlin"
    assert following(schedule, "2026-11-27T07:54") == "2026-11-27T07:55:00+01:00"
    assert following(schedule, "2026-11-27T07:55") == "2026-11-30T07:55:00+01:00"


def test_the_wall_time_is_kept_over_a_change_of_the_clocks() -> None:
    schedule = "daily 07:55 Europe/Berlin"
    assert following(schedule, "2026-03-28T08:00") == "2026-03-29T07:55:00+02:00"
    assert following(schedule, "2026-10-24T08:00") == "2026-10-25T07:55:00+01:00"


def test_a_time_that_the_clocks_skip_still_comes_once() -> None:
    schedule = parse_schedule("daily 02:30 Europe/Berlin")
    first = schedule.next_after(at("2026-03-29T00:00"))
    second = schedule.next_after(first)
    assert datetime.fromtimestamp(first, BERLIN).day == 29
    assert datetime.fromtimestamp(second, BERLIN).day == 30


def test_day_ranges_wrap_and_lists_join() -> None:
    assert parse_schedule("Sat-Mon 00:00").days == {5, 6, 0}
    assert parse_schedule("mon,wed,fri-sat 00:00 UTC").days == {0, 2, 4, 5}
    assert parse_schedule("06:00").days == set(range(7))


@pytest.mark.parametrize(
    "text", ["", "Mon", "Mon 7", "Mon 24:00", "Mon 07:60", "Xyz 07:00", "Mon- 07:00", "-Mon 07:00"]
)
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: "):
        parse_schedule(text)


def test_a_zone_cannot_name_a_file() -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        parse_schedule("daily 07:00 ../../etc/passwd")
