"""The search on a simulated clock, where thresholds are known exactly."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from preroll.core import Fingerprint
from preroll.errors import RefusedError
from preroll.instruments.cliff.levels import Pool
from preroll.instruments.cliff.plot import Beside, plot
from preroll.instruments.cliff.report import measurement, page, text
from preroll.instruments.cliff.search import (
    COLLAPSE,
    EXCEEDS,
    MATERIAL,
    Cliff,
    Search,
    Settings,
)
from preroll.instruments.cliff.simulated import SimulatedProbe, Station

STATION = Station(8, 0.020, 0.080, degrade_above=50, degrade_below=25, degrade_factor=3.0)
MARK = Fingerprint("cpu", "none", "mock", "1", (), "name:mock")


def found(station: Station = STATION, seed: int = 1, settings: Settings | None = None) -> Cliff:
    return Search(SimulatedProbe(station, seed), settings or Settings()).run()


def test_the_exact_share_is_that_of_the_simulation() -> None:
    for level in (28, 32, 40, 45):
        outcomes = SimulatedProbe(replace(STATION, degrade_factor=1.0), 5).measure(
            level, 40_000, drain=True
        )
        assert sum(outcomes) / len(outcomes) == pytest.approx(STATION.share(level), abs=0.04)


def test_thresholds_are_found_and_their_intervals_hold_the_truth() -> None:
    truth = {MATERIAL: STATION.threshold(0.05), COLLAPSE: STATION.threshold(0.5)}
    held = 0
    for seed in range(12):
        cliff = found(seed=seed)
        assert cliff.ended == "complete"
        for name, level in truth.items():
            threshold = cliff.threshold(name)
            assert threshold.level is not None
            assert abs(threshold.level - level) <= 0.15 * level
            held += (threshold.low or 0) <= level <= (threshold.high or 10**9)
        exceeds, material, collapse = (t.level or 0 for t in cliff.thresholds)
        assert exceeds <= material <= collapse
    assert held >= 21


def test_recovery_is_found_below_the_level_that_was_good_on_the_way_up() -> None:
    truth = STATION.recovery(0.05)
    assert truth == 26
    found_at = sorted(found(seed=seed).recovery or 0 for seed in range(9))
    assert abs(found_at[4] - truth) <= 0.15 * truth
    without = replace(STATION, degrade_factor=1.0)
    assert (found(without).recovery or 0) > truth


def test_the_limit_is_below_material_and_recovery() -> None:
    cliff = found()
    assert cliff.limit is not None and cliff.recovery is not None
    assert cliff.limit <= cliff.recovery
    assert cliff.limit <= (cliff.threshold(MATERIAL).low or 0)


def test_an_unresolved_cliff_says_so_and_sets_no_limit() -> None:
    small = found(settings=Settings(max_requests=500))
    assert "budget of 500 requests" in small.ended and small.limit is None
    assert small.requests <= 500
    with pytest.raises(RefusedError, match="no limit is written"):
        measurement(small, "chat", MARK, datetime.now(UTC))
    never = found(Station(64, 0.02, 5.0), settings=Settings(max_level=64))
    assert "no collapse up to 64" in never.ended
    assert "unresolved" in text(never, "t")


def test_time_and_failures_bound_the_search() -> None:
    ticks = iter(range(10**6))
    slow = Search(
        SimulatedProbe(STATION, 1), Settings(max_seconds=5.0), clock=lambda: float(next(ticks))
    ).run()
    assert "budget of 5 s" in slow.ended
    assert "more than 50 requests have failed" in found(settings=Settings(max_failures=50)).ended


@pytest.mark.parametrize("looks", [0, 1, 5, 12])
def test_an_interrupt_at_any_time_leaves_what_is_known(looks: int) -> None:
    class Interrupted(SimulatedProbe):
        def measure(self, level: int, count: int, *, drain: bool) -> list[bool]:
            if self.__dict__.setdefault("left", looks) == 0:
                raise KeyboardInterrupt
            self.__dict__["left"] -= 1
            return super().measure(level, count, drain=drain)

    cliff = Search(Interrupted(STATION, 1)).run()
    assert cliff.ended == "interrupted" and cliff.limit is None
    assert sum(seen.count for seen in cliff.up) > 0 or looks == 0
    assert len(cliff.thresholds) == 3 and "interrupted" in text(cliff, "t")


def test_a_server_that_fails_alone_has_a_baseline_above_which_thresholds_lie() -> None:
    class Flaky(SimulatedProbe):
        def measure(self, level: int, count: int, *, drain: bool) -> list[bool]:
            outcomes = super().measure(level, count, drain=drain)
            return [o or self._random.random() < 0.2 for o in outcomes]

    cliff = Search(Flaky(replace(STATION, degrade_factor=1.0), 3)).run()
    assert 0.1 < cliff.baseline < 0.35
    material = cliff.threshold(MATERIAL)
    assert material.share == pytest.approx(cliff.baseline + 0.05)
    assert cliff.threshold(EXCEEDS).share > cliff.baseline
    assert cliff.first_failure == 1


def test_a_wrong_alarm_does_not_end_the_search() -> None:
    class Alarmist(SimulatedProbe):
        def measure(self, level: int, count: int, *, drain: bool) -> list[bool]:
            outcomes = super().measure(level, count, drain=drain)
            # The first look at 32 sees an accident that no later look confirms.
            if level == 32 and not self.__dict__.setdefault("done", False):
                self.__dict__["done"] = True
                return [True] * len(outcomes)
            return outcomes

    cliff = Search(Alarmist(replace(STATION, degrade_factor=1.0), 4)).run()
    assert cliff.threshold(COLLAPSE).level is not None
    assert cliff.threshold(COLLAPSE).level >= 35


def test_a_door_cliff_never_sets_a_limit() -> None:
    cliff = replace(found(), is_door=True)
    assert cliff.limit is None
    with pytest.raises(RefusedError):
        measurement(cliff, "chat", MARK, datetime.now(UTC))


def test_the_measurement_carries_the_limit_and_what_it_was_made_of() -> None:
    cliff = found()
    entry = measurement(cliff, "chat", MARK, datetime(2026, 11, 29, tzinfo=UTC))
    assert (entry.kind, entry.unit, entry.value) == ("cliff", "requests", float(cliff.limit or 0))
    assert entry.extra["recovery_level"] == cliff.recovery
    assert entry.date == "2026-11-29T00:00:00+00:00"


def test_the_page_plots_both_directions_thresholds_the_queue_and_greyed_utilisation() -> None:
    cliff = found()
    html = page(cliff, "a <b>", Beside({8: 1.0, 64: 50.0}, {1: 40.0, 8: 400.0}))
    assert html.count("<polyline") == 4 and "a &lt;b&gt;" in html
    assert "own queue" in html and "100 % = 400 requests/s" in html
    for threshold in cliff.thresholds:
        assert f">{threshold.name} {threshold.level}</text>" in html
    assert f">recovery {cliff.recovery}</text>" in html


def test_a_plot_is_drawn_of_whatever_little_is_known() -> None:
    for budget in (1, 150, 250):
        cliff = found(settings=Settings(max_requests=budget))
        tree = ElementTree.fromstring(plot(cliff, Beside()))
        assert tree.tag == "{http://www.w3.org/2000/svg}svg"
        assert "no queue seen" in "".join(tree.itertext())
    assert "nothing waited" in plot(cliff, Beside({1: 0.0}))


def test_every_level_on_the_plot_lies_inside_it() -> None:
    cliff = found()
    tree = ElementTree.fromstring(plot(cliff, Beside({8: 1.0, 64: 3e4}, {1: 0.01, 8: 400.0})))
    width, height = (float(x) for x in tree.attrib["viewBox"].split()[2:])
    points = [
        tuple(map(float, pair.split(",")))
        for line in tree.iter("{http://www.w3.org/2000/svg}polyline")
        for pair in line.attrib["points"].split()
    ]
    assert len(points) > 20
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_what_the_limit_needs_is_found_before_the_first_failures() -> None:
    cliff = found(settings=Settings(max_requests=6000))
    assert "budget" in cliff.ended and cliff.limit is not None


def test_bounds_of_clustered_failures_are_wider() -> None:
    lone, clustered = Pool(), Pool()
    lone.add(10, [i % 10 == 0 for i in range(1000)])
    clustered.add(10, [i % 500 < 50 for i in range(1000)])
    assert lone.share(10) == clustered.share(10)
    width = [high - low for low, high in (p.bounds(10) for p in (lone, clustered))]
    assert width[1] > 1.5 * width[0]
