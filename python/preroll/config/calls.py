"""Who may call whom: every called stage exists, and the graph of calls has no cycle."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

from preroll.config.problems import Problem
from preroll.config.schema import App


def call_problems(app: App, named: Collection[str]) -> Iterator[Problem]:
    """`named`: the stages of the file, those that are wrong by themselves too."""
    for name, stage in app.stages.items():
        for i, called in enumerate(stage.calls):
            where = ("stage", name, "calls", i)
            if called not in named:
                near = difflib.get_close_matches(called, list(named), n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                allowed = ", ".join(n for n in named if n != name) or "none: it is the only stage"
                yield Problem(where, f"there is no stage {called!r}; allowed: {allowed}{hint}")
            elif called in stage.calls[:i]:
                yield Problem(where, f"{called!r} is given twice")
    cycle = find_cycle({name: stage.calls for name, stage in app.stages.items()})
    if cycle:
        at = app.stages[cycle[0]].calls.index(cycle[1])
        message = (
            f"the calls {' → '.join(cycle)} make a cycle: when every slot waits for the next"
            " stage, none is ever free; remove one of these calls"
        )
        yield Problem(("stage", cycle[0], "calls", at), message)


def find_cycle(calls: Mapping[str, Collection[str]]) -> list[str]:
    """The first cycle, as a path that ends where it begins; empty when there is none."""
    done: set[str] = set()
    for start in calls:
        found = _walk(start, calls, [], done)
        if found:
            return found
    return []


def _walk(
    name: str, calls: Mapping[str, Collection[str]], path: list[str], done: set[str]
) -> list[str]:
    if name in path:
        return [*path[path.index(name) :], name]
    if name in done:
        return []
    for called in calls.get(name, ()):
        found = _walk(called, calls, [*path, name], done)
        if found:
            return found
    done.add(name)
    return []
