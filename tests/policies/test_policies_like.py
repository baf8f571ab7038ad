"""The re-implementations keep the documented rules of what they are named after."""

from __future__ import annotations

import sys
from pathlib import Path

from preroll.control.policies import KedaLike, KnativeLike, RayServeLike
from preroll.core import ScaleParameters

sys.path.insert(0, str(Path(__file__).parent))
from policy_fleet import Fleet

MANY = ScaleParameters(0, 100, target_concurrency=1.0)


def test_knative_panics_within_its_six_second_window_and_ours_of_sixty_follows() -> None:
    fleet = Fleet(KnativeLike(), MANY, start_s=2.0, tick_s=2.0)
    list(fleet.run(lambda _: 1.0, 60))
    assert max(fleet.run(lambda _: 20.0, 4)) == 20, "panic window of 6 s"


def test_knative_releases_the_last_pod_after_window_and_grace() -> None:
    fleet = Fleet(KnativeLike(), MANY, start_s=2.0, tick_s=2.0)
    list(fleet.run(lambda _: 1.0, 60))
    decisions = list(fleet.run(lambda _: 0.0, 100))
    released_s = 2.0 * (decisions.index(0) + 1)
    assert 60 <= released_s <= 60 + 30 + 2 * 2


def test_ray_serve_waits_thirty_seconds_up_and_six_hundred_down() -> None:
    fleet = Fleet(RayServeLike(), MANY, start_s=1.0, tick_s=5.0)
    list(fleet.run(lambda _: 1.0, 20))
    up = list(fleet.run(lambda _: 10.0, 40))
    first_up_s = 5.0 * next(i for i, n in enumerate(up) if n > 1)
    assert 30 <= first_up_s <= 40 and up[-1] == 10
    down = list(fleet.run(lambda _: 1.0, 200))
    first_down_s = 5.0 * next(i for i, n in enumerate(down) if n < 10)
    assert 600 <= first_down_s <= 640


def test_keda_takes_all_replicas_to_zero_at_once_as_its_users_report() -> None:
    # keda#7770: the difference to ours, kept on purpose; it shows when the poll comes first
    before_zero = set()
    for phase in range(2):
        fleet = Fleet(KedaLike(), MANY, start_s=1.0, tick_s=15.0)
        list(fleet.run(lambda _: 40.0, 100 + phase))
        decisions = list(fleet.run(lambda _: 0.0, 60))
        zero = decisions.index(0)
        assert 285 <= 15.0 * (zero + 1) <= 345, "300 s after the poll that last saw load"
        before_zero.add(decisions[zero - 1])
    assert max(before_zero) == 40


def test_keda_ignores_a_load_within_its_tolerance() -> None:
    fleet = Fleet(KedaLike(), MANY, start_s=1.0, tick_s=15.0)
    list(fleet.run(lambda _: 20.0, 40))
    assert set(fleet.run(lambda _: 21.5, 40)) == {20}
