"""The start bill: seven waits, four levels of preparedness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from preroll.core import Preparedness, Wait
from preroll.planning.formulas.check import number, positive
from preroll.planning.formulas.transfer import floor_s

OBJECT_STORE_STREAM = 1e9
NVME = 7e9
LOAD_FROM_FETCHED = 141.2e9 / 15.0
LOAD_FROM_PINNED = 141.2e9 / 4.0
"""Effective bytes/s into the model: chosen so that 141.2 GB takes 15 s and 4 s (the reference)."""


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds of the waits that do not depend on the weights' size; the reference values."""

    node_s: float = 120.0
    image_s: float = 70.0
    image_present_s: float = 2.0
    init_s: float = 5.0
    compile_s: float = 60.0
    compile_restored_s: float = 6.0
    warm_s: float = 8.0
    warm_resident_s: float = 5.0


def total_s(waits: Mapping[Wait, float]) -> float:
    """Sum of the waits in seconds. Valid: each >= 0; they happen one after another, none hides
    behind another (an engine that fetches while it compiles is faster than this)."""
    return sum(number(f"wait {wait}", seconds, 0.0, 1e7) for wait, seconds in waits.items())


def bill(
    level: Preparedness,
    weight_bytes: float,
    times: StageTimes | None = None,
    fetch_bandwidth: float = OBJECT_STORE_STREAM,
    disk_bandwidth: float = NVME,
) -> dict[Wait, float]:
    """Seconds per wait of one start at one preparedness level.

    `weight_bytes`: all shards of one replica. Bandwidths in bytes/s for the whole replica.
    new_node pays everything; warm_node has machine and image; local_weights reads the node's own
    disk; resident has weights in pinned host memory and compiled artifacts restored.
    Valid: positive sizes and bandwidths. Ignores overlap of the waits and contention.
    Source: the reference bill 120+70+5+141+15+60+8 s against 0+2+5+0+4+6+5 s (ours, for 141.2 GB).
    """
    size = positive("weight bytes", weight_bytes)
    t = times or StageTimes()
    fetched = level in (Preparedness.NEW_NODE, Preparedness.WARM_NODE)
    new, resident = level is Preparedness.NEW_NODE, level is Preparedness.RESIDENT
    load = {Preparedness.LOCAL_WEIGHTS: disk_bandwidth, Preparedness.RESIDENT: LOAD_FROM_PINNED}
    return {
        Wait.NODE: t.node_s if new else 0.0,
        Wait.IMAGE: t.image_s if new else t.image_present_s,
        Wait.INIT: t.init_s,
        Wait.FETCH: floor_s(size, fetch_bandwidth) if fetched else 0.0,
        Wait.LOAD: floor_s(size, load.get(level, LOAD_FROM_FETCHED)),
        Wait.COMPILE: t.compile_restored_s if resident else t.compile_s,
        Wait.WARM: t.warm_resident_s if resident else t.warm_s,
    }


def saving_s(before: Mapping[str, float], removed: str, still_paid_s: float) -> float:
    """What removing one phase saves, in seconds: its time less what another phase pays again.

    `still_paid_s`: shared cost (an import that a later phase needs too) that moves down the bill.
    Valid: 0 <= still_paid_s <= the phase's time. Source: a measured start where removing a phase
    of 12.36 s saved 2.5 s, because 9.86 s of it were shared.
    """
    seconds = number(f"phase {removed}", before.get(removed), 0.0, 1e7)
    return seconds - number("still_paid_s", still_paid_s, 0.0, seconds)
