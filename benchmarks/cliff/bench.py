"""`make bench-cliff`: thresholds found against thresholds known.

The station of instruments/cliff/simulated.py has exact thresholds (an Erlang tail). Every seeded
run is on the simulated clock; `--live N` adds runs against the mock, over real sockets.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from preroll.instruments.cliff.live import LiveProbe
from preroll.instruments.cliff.search import COLLAPSE, EXCEEDS, MATERIAL, Cliff, Search, Settings
from preroll.instruments.cliff.simulated import SimulatedProbe, Station
from preroll.instruments.load.client import Mock
from preroll.instruments.load.requests import Ask, parse_url, template
from preroll.instruments.load.result import Targets

SETTINGS = Settings()
# A run over sockets ends after some 40 s: what a budget leaves undecided is part of the answer.
LIVE_REQUESTS = 15_000
STATIONS = (
    Station(8, 0.020, 0.080, degrade_above=50, degrade_below=25, degrade_factor=3.0),
    Station(32, 0.020, 0.040, degrade_above=120, degrade_below=60, degrade_factor=3.0),
    Station(4, 0.050, 0.400),
    Station(16, 0.010, 0.030),
)
NAMES = {EXCEEDS: "exceeds", MATERIAL: "material", COLLAPSE: "collapse"}


@dataclass(frozen=True, slots=True)
class Truth:
    levels: dict[str, int]
    recovery: int

    @staticmethod
    def of(station: Station) -> Truth:
        s = SETTINGS
        shares = {EXCEEDS: s.exceeds, MATERIAL: s.material, COLLAPSE: s.collapse}
        levels = {name: station.threshold(share) for name, share in shares.items()}
        return Truth(levels, station.recovery(s.material))


def naive_requests(cliff: Cliff, truth: Truth) -> float:
    """What a step ramp costs that visits every level up to collapse and looks at each as long as
    the search looked at the levels next to its thresholds (in multiples of the level)."""
    near = [
        seen.count / seen.level
        for seen in cliff.up
        if any(abs(seen.level - t) <= max(1, 0.05 * t) for t in truth.levels.values())
    ]
    cycles = statistics.median(near) if near else float(SETTINGS.passes[-1].cycles)
    top = truth.levels[COLLAPSE]
    return sum((cycles + 1) * level for level in range(1, top + 1))


@dataclass
class Tally:
    errors: dict[str, list[float]]
    covered: list[bool]
    over_naive: list[float]
    unresolved: int = 0

    @staticmethod
    def empty() -> Tally:
        return Tally({name: [] for name in (*NAMES.values(), "recovery")}, [], [])

    def add(self, cliff: Cliff, truth: Truth) -> None:
        for name, short in NAMES.items():
            found, true = cliff.threshold(name), truth.levels[name]
            if found.level is None:
                self.unresolved += 1
                continue
            self.errors[short].append(abs(found.level - true) / true)
            if name != EXCEEDS:
                low, high = found.low or 0, found.high or 10**9
                self.covered.append(low <= true <= high)
        if cliff.recovery is not None:
            self.errors["recovery"].append(abs(cliff.recovery - truth.recovery) / truth.recovery)
        self.over_naive.append(naive_requests(cliff, truth) / cliff.requests)

    def keys(self, prefix: str = "") -> dict[str, float]:
        found = {
            f"{prefix}{name}_error_median": round(statistics.median(values), 4)
            for name, values in self.errors.items()
            if values
        }
        found[f"{prefix}interval_coverage"] = round(statistics.mean(self.covered), 4)
        found[f"{prefix}requests_over_naive"] = round(statistics.median(self.over_naive), 2)
        found[f"{prefix}unresolved"] = self.unresolved
        return found


def simulated(runs: int) -> Tally:
    tally = Tally.empty()
    for seed in range(runs):
        for station in STATIONS:
            cliff = Search(SimulatedProbe(station, seed), SETTINGS).run()
            tally.add(cliff, Truth.of(station))
    return tally


def live_runs(runs: int) -> Iterator[Cliff]:
    station = STATIONS[0]
    targets = Targets(ttft_ms=station.limit_s * 1e3)
    settings = replace(SETTINGS, max_requests=LIVE_REQUESTS)
    for seed in range(1, runs + 1):
        mock = Mock(
            servers=station.servers,
            service_ms=station.service_s * 1e3,
            tokens=2,
            seed=seed,
            degrade_above=station.degrade_above,
            degrade_below=station.degrade_below,
            degrade_factor=station.degrade_factor,
        )
        with mock, tempfile.TemporaryDirectory() as folder:
            server = parse_url(mock.url)
            requests = [template(server, Ask(model="mock", max_tokens=2), "hello")]
            records = Path(folder) / "records.ndjson"
            with LiveProbe(server, requests, targets, records) as probe:
                yield Search(probe, settings).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="seeds per station")
    parser.add_argument("--live", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/bench/cliff.json"))
    arguments = parser.parse_args()
    tally = simulated(arguments.runs)
    keys = tally.keys() | {"runs": float(len(tally.over_naive))}
    live = Tally.empty()
    for cliff in live_runs(arguments.live):
        live.add(cliff, Truth.of(STATIONS[0]))
    if live.over_naive:
        keys |= live.keys("live_")
    print("| | |\n|---|---|")
    for name, value in keys.items():
        print(f"| {name} | {value:g} |")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(keys, indent=1) + "\n")


if __name__ == "__main__":
    main()
