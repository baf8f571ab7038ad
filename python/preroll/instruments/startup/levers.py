"""What to try, cheapest first, each with its evidence from one profile."""

from __future__ import annotations

from collections.abc import Iterator

from preroll.instruments.startup.base import Lever, Profile


def find(profile: Profile, ready: str | None) -> Iterator[Lever]:
    yield from ()
