"""Open-loop runs at a limit, with a planted executor and over real sockets."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from preroll.core import Fingerprint
from preroll.instruments.cliff.confirm import FAILS, HOLDS, UNDECIDED, confirm, sender
from preroll.instruments.cliff.report import measurement, text
from preroll.instruments.cliff.search import Cliff, Search, Settings
from preroll.instruments.cliff.simulated import SimulatedProbe, Station
from preroll.instruments.load.client import Mock
from preroll.instruments.load.requests import Ask, parse_url, template
from preroll.instruments.load.result import Targets

MARK = Fingerprint("cpu", "none", "mock", "1", (), "name:mock")
NOW = datetime(2026, 11, 29, tzinfo=UTC)


def cliff() -> Cliff:
    return Search(SimulatedProbe(Station(8, 0.02, 0.08), 1), Settings()).run()


def planted(shares: dict[float, float]) -> tuple[list[float], object]:
    """An executor that fails that share of requests at each rate; it notes what it was asked."""
    asked: list[float] = []

    def send(rate_per_s: float, count: int) -> tuple[list[bool], float]:
        asked.append(rate_per_s)
        every = shares[rate_per_s]
        return [every > 0 and i % round(1 / every) == 0 for i in range(count)], rate_per_s / 10

    return asked, send


def test_the_highest_rate_that_holds_becomes_the_target() -> None:
    asked, send = planted({80.0: 0.5, 65.0: 0.05, 50.0: 0.0})
    runs = confirm(cliff(), 100.0, send)  # type: ignore[arg-type]
    assert asked == [80.0, 65.0, 50.0]
    assert [run.verdict for run in runs] == [FAILS, UNDECIDED, HOLDS]
    found = replace(cliff(), open_runs=runs)
    extra = measurement(found, "chat", MARK, NOW).extra
    assert (extra["open_rate_per_s"], extra["target"]) == (50.0, 5.0)
    assert "open loop at 50.0 requests/s (50% of the closed loop's at the limit)" in text(
        found, "t"
    )


def test_where_no_rate_holds_no_target_is_written() -> None:
    _, send = planted(dict.fromkeys((80.0, 65.0, 50.0, 35.0), 0.5))
    found = replace(cliff(), open_runs=confirm(cliff(), 100.0, send))  # type: ignore[arg-type]
    assert len(found.open_runs) == 4
    assert "target" not in measurement(found, "chat", MARK, NOW).extra


def test_runs_are_shortened_to_the_time_there_is_and_none_begins_that_could_decide_nothing() -> (
    None
):
    counts: list[int] = []

    def send(rate_per_s: float, count: int) -> tuple[list[bool], float]:
        counts.append(count)
        return [True] * count, 1.0

    left = iter([5.0, 3.0, 2.0])
    runs = confirm(cliff(), 100.0, send, lambda: next(left))
    assert counts == [200, 97]  # half of the time at 80, then at 65 per second; 50 would be left
    assert [run.count for run in runs] == counts


def test_arrivals_over_real_sockets_come_at_the_rate_and_are_judged_by_the_promise() -> None:
    with Mock(ttft_ms=20, gap_ms=1, tokens=2) as mock:
        server = parse_url(mock.url)
        requests = [template(server, Ask(model="mock", max_tokens=2), "hello")]
        for limit_ms, fails in ((5.0, True), (5000.0, False)):
            send = sender(server, requests, Targets(ttft_ms=limit_ms), 10.0)
            outcomes, in_flight = send(400.0, 120)
            assert len(outcomes) == 120 and all(outcomes) is fails and any(outcomes) is fails
            assert 2.0 < in_flight < 60.0  # Little: 400/s for at least 21 ms is 8.4
