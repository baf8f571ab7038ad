"""What first calls say of a warm-up: work of one route, of whatever comes first, or chance."""

from __future__ import annotations

import pytest

from preroll.instruments.warmth import Route, Seen


def route(*firsts: tuple[int, float]) -> Route:
    """`firsts`: by replica, how many routes were asked before and how long the first call took;
    later ones take 10 ms, 12 at most."""
    return Route("/a", tuple(Seen(position, ms, 10.0, 12.0) for position, ms in firsts))


@pytest.mark.parametrize(
    ("firsts", "found"),
    [
        ([(0, 90.0), (2, 88.0), (1, 92.0)], "/a: its first call takes 80 ms longer on every"),
        ([(0, 910.0), (2, 860.0), (1, 310.0)], "/a: its first call takes 850 ms longer on every"),
        ([(0, 50.0), (2, 11.0), (1, 9.0)], "whatever is called first takes 40 ms longer"),
        ([(0, 90.0), (2, 16.0), (0, 90.0)], "whatever is called first takes 80 ms longer"),
        ([(0, 90.0), (2, 88.0)], "/a: the first call took 79 ms longer, seen 2 times"),
    ],
)
def test_late_first_calls_are_told_as_what_they_are(
    firsts: list[tuple[int, float]], found: str
) -> None:
    assert (route(*firsts).finding() or "").startswith(found)


@pytest.mark.parametrize(
    "firsts",
    [
        [(0, 11.0), (2, 9.0), (1, 12.0)],
        [(0, 14.9), (2, 14.9), (1, 14.9)],  # no more than 5 ms
        [(0, 51.0), (1, 51.0), (2, 11.0)],  # another route before it paid in the third
        [(0, 51.0), (1, 51.0), (2, 18.0)],  # ... where the machine was busy for a moment
    ],
)
def test_a_warm_route_is_not_accused(firsts: list[tuple[int, float]]) -> None:
    assert route(*firsts).finding() is None
