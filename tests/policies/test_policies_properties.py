"""What every policy must keep, whatever the load: bounds, no flapping, no pile of starts."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preroll.control.policies import POLICIES, policy_named
from preroll.core import ScaleParameters

sys.path.insert(0, str(Path(__file__).parent))
from policy_fleet import Fleet

SCALING = [name for name in POLICIES if name != "always-on"]
OURS = [name for name in SCALING if not name.endswith("-like")]
loads = st.lists(st.sampled_from([0.0, 0.0, 1.0, 3.0, 10.0, 80.0, 1e6]), min_size=1, max_size=120)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(loads=loads, low=st.integers(0, 3), room=st.integers(0, 20), start_s=st.floats(1.0, 900.0))
def test_no_decision_leaves_the_bounds(
    name: str, loads: list[float], low: int, room: int, start_s: float
) -> None:
    parameters = ScaleParameters(low, low + room, target_concurrency=4.0)
    fleet = Fleet(policy_named(name), parameters, start_s=start_s)
    for load in loads:
        assert low <= fleet.tick(load).replicas <= low + room


@pytest.mark.parametrize("name", SCALING)
@settings(max_examples=25, deadline=None)
@given(load=st.floats(0.5, 100.0), start_s=st.floats(1.0, 400.0))
def test_constant_load_settles_on_one_number(name: str, load: float, start_s: float) -> None:
    # ray#18925, ray#26455: a constant load must not start and stop replicas for ever
    fleet = Fleet(policy_named(name), ScaleParameters(0, 50, target_concurrency=4.0), start_s)
    decisions = list(fleet.run(lambda _: load, 600))
    assert len(set(decisions[-200:])) == 1, f"flaps between {set(decisions[-200:])}"
    assert decisions[-1] * 4.0 >= load * 0.9, "the load is not carried"


@pytest.mark.parametrize("name", SCALING)
def test_replicas_that_start_slowly_are_counted_and_not_started_again(name: str) -> None:
    # knative#12440, kserve#1247: half an hour of booting must not bring more boots or kills
    fleet = Fleet(policy_named(name), ScaleParameters(0, 100, target_concurrency=4.0), 1800.0)
    decisions = list(fleet.run(lambda _: 24.0, 300))
    assert max(decisions) == 6
    assert fleet.ready == 0 and len(fleet.starting) == 6
    assert decisions == sorted(decisions), "a start was killed while its demand lasted"


@pytest.mark.parametrize("name", OURS)
def test_many_replicas_never_go_to_none_in_one_step(name: str) -> None:
    # keda#7770, and knative#3153: a pause must not undo the whole scale-up
    fleet = Fleet(policy_named(name), ScaleParameters(0, 50, target_concurrency=1.0), 30.0)
    decisions = list(fleet.run(lambda t: 40.0 if t < 300 else 0.0, 6000))
    steps = [a - b for a, b in itertools.pairwise(decisions)]
    assert max(steps) <= 4, f"fell by {max(steps)} replicas in one tick"
    assert decisions[-1] == 0, "never released"


@pytest.mark.parametrize("name", OURS)
def test_demand_is_met_in_the_tick_that_shows_it(name: str) -> None:
    fleet = Fleet(policy_named(name), ScaleParameters(0, 50, target_concurrency=2.0))
    list(fleet.run(lambda _: 2.0, 30))
    assert fleet.tick(30.0).replicas == 15


@pytest.mark.parametrize("name", SCALING)
def test_no_traffic_never_scales_to_the_maximum(name: str) -> None:
    # ray#61731: an empty metric read as infinite demand
    fleet = Fleet(policy_named(name), ScaleParameters(0, 9, target_concurrency=1.0))
    assert max(fleet.run(lambda _: 0.0, 500)) <= 1


@pytest.mark.parametrize("name", OURS)
def test_a_load_that_ended_is_scaled_down_again(name: str) -> None:
    # aibrix#593: replicas were never given back while a little traffic went on
    fleet = Fleet(policy_named(name), ScaleParameters(1, 50, target_concurrency=1.0), 30.0)
    decisions = list(fleet.run(lambda t: 40.0 if t < 300 else 1.0, 3000))
    assert max(decisions) == 40 and decisions[-1] == 1
