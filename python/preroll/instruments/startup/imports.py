"""Import costs of every Python process of a start, added up by package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from preroll.instruments.startup.base import ImportCost
from preroll.instruments.startup.hook import Load, PythonProcess
from preroll.instruments.startup.load_graph import RUNNERS, LoadGraph, Removal, package_of

# Packages beyond these cost next to nothing, and each costs a walk of the graph to judge.
MAX_PACKAGES = 80
PROGRAM = "the program"


def costs(
    processes: Sequence[PythonProcess], own_ns: Mapping[int, Mapping[str, int]], spawned_ns: int
) -> dict[str, ImportCost]:
    """By package, dearest first. `own_ns`: process and module to the nanoseconds that the start
    waited for that module's own load."""
    parts: dict[str, list[tuple[PythonProcess, list[Load], Removal]]] = defaultdict(list)
    for process in processes:
        graph = LoadGraph(process.loads, process.requests, own_ns.get(process.pid, {}))
        for package, names in _dearest(graph):
            loads = [graph.loads[name] for name in names]
            parts[package].append((process, loads, graph.remove(names)))
    found = [_cost(package, some, spawned_ns) for package, some in parts.items()]
    found.sort(key=lambda cost: cost.inclusive_s, reverse=True)
    return {cost.package: cost for cost in found}


def _dearest(graph: LoadGraph) -> list[tuple[str, list[str]]]:
    packages = graph.packages()
    cost = {package: graph.cost(graph.inclusive(names)) for package, names in packages.items()}
    dearest = sorted(packages, key=lambda package: cost[package], reverse=True)
    return [(package, packages[package]) for package in dearest[:MAX_PACKAGES] if cost[package]]


def _cost(
    package: str, parts: Sequence[tuple[PythonProcess, list[Load], Removal]], spawned_ns: int
) -> ImportCost:
    moves: dict[str, float] = defaultdict(float)
    for _, _, removal in parts:
        for to, ns in removal.moves_ns.items():
            moves[to or PROGRAM] += ns / 1e9
    outermost = [load for process, loads, _ in parts for load in _outermost(process, loads)]
    first = min((load for _, loads, _ in parts for load in loads), key=lambda one: one.start_ns)
    return ImportCost(
        package=package,
        importer=PROGRAM if first.importer in RUNNERS else package_of(first.importer),
        num_modules=sum(len(loads) for _, loads, _ in parts),
        inclusive_s=sum(removal.inclusive_ns for _, _, removal in parts) / 1e9,
        exclusive_s=sum(removal.exclusive_ns for _, _, removal in parts) / 1e9,
        moves_to=dict(sorted(moves.items(), key=lambda move: -move[1])),
        cpu_s=sum(load.cpu_ns for load in outermost) / 1e9,
        major_faults=sum(load.major_faults for load in outermost),
        read_bytes=sum(load.read_bytes for load in outermost),
        first_s=(first.start_ns - spawned_ns) / 1e9,
    )


def _outermost(process: PythonProcess, loads: Sequence[Load]) -> list[Load]:
    """Those of `loads` that lie within no other of them: what they used is counted once."""
    by_name = {load.name: load for load in process.loads}
    mine = {load.name for load in loads}

    def is_inner(load: Load) -> bool:
        seen: set[str] = set()
        outer = by_name.get(load.importer)
        # An importer may have been loaded long before its code asked.
        while outer is not None and _contains(outer, load) and outer.name not in seen:
            if outer.name in mine:
                return True
            seen.add(outer.name)
            outer = by_name.get(outer.importer)
        return False

    return [load for load in loads if not is_inner(load)]


def _contains(outer: Load, load: Load) -> bool:
    return outer.start_ns <= load.start_ns and (
        outer.end_ns is None or load.start_ns < outer.end_ns
    )
