"""Policies in the simulator: prices, seeds, errors, and the command line end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preroll.cli import main as command_line
from preroll.control.policies import POLICIES, policy_named
from preroll.core import Decision, Observation, ScaleParameters
from preroll.errors import InputError
from preroll.planning.scenario import Inputs, scenario
from preroll.planning.simulation_html import page
from preroll.planning.simulation_report import table
from preroll.planning.simulator import Outcome, Scenario, simulate
from preroll.planning.sweep import sweep
from preroll.planning.workloads import Workload, workload

ONE = Scenario(
    service={"kind": "slots", "slots": 4, "time": {"kind": "constant", "value": 1.0}},
    scale=ScaleParameters(0, 1, 4.0),
    start={"new_node": {"kind": "constant", "value": 30.0}},
    late_s=2.0,
    tick_s=1.0,
)


def run(name: str, load: Workload, case: Scenario = ONE) -> Outcome:
    return simulate(load, case, name, lambda: policy_named(name))


def every(seconds: float, count: int, tmp_path: Path) -> Workload:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"t": {i * seconds}}}\n' for i in range(count)))
    return workload(str(path))


def test_a_request_every_ten_seconds_keeps_its_replica_and_costs_the_gaps(tmp_path: Path) -> None:
    outcome = run("ski-rental", every(10.0, 100, tmp_path))
    report = outcome.endpoints["log"]
    assert (outcome.cold_starts, report["served"]) == (1, 100)
    # the first four wait for the start; of the three that came 10, 20 and 30 s later none is late
    assert report["late"] == 3
    assert outcome.optimum_s == pytest.approx(30.0 + 99 * 9.0)
    assert outcome.cost_over_optimum == pytest.approx(1.0, abs=0.05)


def test_long_gaps_cost_a_start_and_the_timeout_each(tmp_path: Path) -> None:
    given = replace(ONE, scale=replace(ONE.scale, idle_timeout_s=20.0))
    outcome = run("fixed-timeout", every(1000.0, 10, tmp_path), given)
    assert outcome.cold_starts == 10
    assert outcome.optimum_s == pytest.approx(10 * 30.0)
    assert outcome.cost_s == pytest.approx(10 * 30.0 + 9 * 20.0, abs=9 * 1.1)


@pytest.mark.parametrize("name", POLICIES)
def test_equal_seeds_give_equal_outcomes_and_all_requests_end(name: str) -> None:
    load = workload("gamma:rate=0.5,cv=4,for=20m")
    case = replace(ONE, scale=ScaleParameters(0, 6, 2.0))
    first, second = run(name, load, case), run(name, load, case)
    assert first == second
    report = first.endpoints["gamma"]
    ended = sum(report[k] for k in ("served", "refused", "expired", "timed_out", "in_flight"))
    assert ended == report["arrivals"] > 100
    other = run(name, load, replace(case, seed=1))
    assert other.endpoints["gamma"]["arrivals"] != report["arrivals"]


def test_always_on_never_starts_anything() -> None:
    outcome = run("always-on", workload("poisson:rate=1,for=10m"))
    assert (outcome.cold_starts, outcome.late_share) == (0, 0.0)


def test_every_policy_meets_the_same_requests() -> None:
    load = workload("poisson:rate=1,for=10m")
    assert len({run(name, load).total("arrivals") for name in POLICIES}) == 1


def test_what_a_policy_sees_is_what_is_there() -> None:
    seen: list[Observation] = []

    class Watch:
        def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
            seen.append(observation)
            return Decision(1, "watching")

    load = workload("deterministic:rate=0.1,for=5m")
    simulate(load, replace(ONE, wall_s=1e9), "watch", Watch)
    assert seen[0].wall_s >= 1e9
    last = seen[-1]
    assert last.num_ready == 1 and last.start_s == pytest.approx(30.0, rel=0.01)
    assert last.gaps_s[-1] == pytest.approx(9.0)
    assert sum(o.arrivals for o in seen) == 29
    settled = [o.concurrency for o in seen if o.now_s > 60]
    assert sum(settled) / len(settled) == pytest.approx(0.1, abs=0.01)


def test_an_exception_of_a_policy_is_not_swallowed() -> None:
    class Broken:
        def decide(self, observation: Observation, parameters: ScaleParameters) -> Decision:
            raise ZeroDivisionError("in the policy")

    with pytest.raises(ZeroDivisionError, match="in the policy"):
        simulate(workload("poisson:rate=1,for=1m"), ONE, "broken", Broken)


def test_a_learned_schedule_is_asked_while_nothing_runs() -> None:
    schedule = replace(ONE, scale=replace(ONE.scale, prewarm=("daily 00:05 UTC",)))
    outcome = run("ski-rental", workload("deterministic:rate=0.001,for=30m"), schedule)
    assert outcome.late_share == 0.0, "the replica stood ready at the first request"
    assert run("ski-rental", workload("deterministic:rate=0.001,for=30m")).late_share == 1.0


def test_wrong_numbers_reach_the_user_as_input_errors() -> None:
    case = replace(ONE, service={"kind": "slots", "slots": 0, "time": ONE.service["time"]})
    with pytest.raises(InputError, match=r"poisson\.service\.slots: 0 given; 1 to"):
        run("always-on", workload("poisson:rate=1,for=1m"), case)


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (Inputs(min=3, max=2), "min is 3, max is 2"),
        (Inputs(target=0.0), "target is 0.0"),
        (Inputs(service_time="soon"), "service_time is 'soon'"),
        (Inputs(batch="max_batch=2,steps=3"), "batch has no option 'steps'"),
    ],
)
def test_a_wrong_option_is_named(inputs: Inputs, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        scenario(inputs)


def test_a_sweep_is_every_combination() -> None:
    assert sweep(("max=1,2", "idle-timeout=1m,auto")) == [
        {"max": 1, "idle_timeout": "1m"},
        {"max": 1, "idle_timeout": "auto"},
        {"max": 2, "idle_timeout": "1m"},
        {"max": 2, "idle_timeout": "auto"},
    ]
    for text, complaint in (("max", "not KEY="), ("maks=1", "no option 'maks'"), ("max=x", "int")):
        with pytest.raises(InputError, match=complaint):
            sweep((text,))


def test_the_page_stands_alone_and_escapes_names() -> None:
    outcome = run("always-on", workload("poisson:rate=1,for=5m"))
    html = page("<b>", [("always-on & on", outcome)])
    assert "<b>" not in html and "always-on &amp; on" in html
    assert html.count("<svg") == 2 and "<script" not in html and "http" not in html
    assert "always-on" in table([("always-on", outcome)])


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = 0
    try:
        status = command_line.run(["simulate", *arguments])
    except InputError as error:
        return error.exit_code, "", str(error)
    out, err = capsys.readouterr()
    return status, out, err


def test_the_command_compares_policies_and_sweeps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    html = tmp_path / "out.html"
    arguments = ["--trace", "poisson:rate=1,for=5m", "--policy", "ski-rental,knative-like"]
    arguments += ["--sweep", "max=1,3", "--json", "--html", str(html)]
    status, out, err = call(arguments, capsys)
    rows: list[dict[str, Any]] = json.loads(out)
    assert status == 0 and str(html) in err
    assert [r["run"] for r in rows] == [
        "ski-rental max=1",
        "knative-like max=1",
        "ski-rental max=3",
        "knative-like max=3",
    ]
    assert html.read_text().count("<svg") == 8


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--trace", "nosuch"], "neither a file"),
        (["--trace", "poisson:rate=1", "--policy", "best"], "policy 'best' is unknown"),
        (["--trace", "poisson:rate=1,for=1m", "--html", "/nosuch/x.html"], "cannot be written"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = call(arguments, capsys)
    assert status == 2 and complaint in err and "\n" not in err


def test_batching_reports_cached_prefixes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--trace", "mooncake", "--policy", "always-on", "--max", "4", "--speed", "10"]
    arguments += ["--batch", "max_batch=32,step=10ms,prefill_token=2us,prefix_blocks=3000"]
    status, out, _ = call([*arguments, "--json"], capsys)
    report = json.loads(out)[0]["endpoints"]["mooncake"]
    assert status == 0 and report["served"] == 12_031
    assert 0.1 < report["cached_tokens"] / report["prompt_tokens"] < 0.6
