"""What each package's removal would save: the dominators of the dynamic load graph.

An edge says that one module's load asked for another module, first loaded by it or not. What a
package dominates (every path from the program to it leads through the package) goes with it; the
rest of what is loaded beneath it moves to whoever asks next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from preroll.instruments.startup.hook import Load, Request

ROOT = ""
# What runs the program's own code: asking from there is asking from the program.
RUNNERS = frozenset(("", "__main__", "__mp_main__", "runpy", "multiprocessing.spawn"))


def package_of(module: str) -> str:
    return module.partition(".")[0]


@dataclass(slots=True)
class Removal:
    """The cost of one package in one process: nanoseconds."""

    inclusive_ns: int = 0
    exclusive_ns: int = 0
    moves_ns: dict[str, int] = field(default_factory=dict)


class LoadGraph:
    """The loads of one process, their own costs, and who asked for what."""

    def __init__(
        self, loads: Sequence[Load], requests: Sequence[Request], own_ns: Mapping[str, int]
    ) -> None:
        self._own_ns = own_ns
        # A load that failed and never worked is a cost of whoever asked; see `attribution`.
        self.loads = {one.name: one for one in reversed(loads) if not one.has_failed}
        self._asked: dict[str, dict[str, int]] = defaultdict(dict)
        self._beneath: dict[str, list[str]] = defaultdict(list)
        for load in self.loads.values():
            self._beneath[self._known(load.importer)].append(load.name)
            parent = load.name.rpartition(".")[0]
            if parent in self.loads:
                self._ask(load.name, parent, load.start_ns)
        for request in requests:
            if request.name in self.loads:
                self._ask(self._known(request.importer), request.name, request.t_ns)

    def _known(self, importer: str) -> str:
        """What was loaded before the hook, and the program itself, are the root."""
        return importer if importer in self.loads and importer not in RUNNERS else ROOT

    def _ask(self, importer: str, name: str, t_ns: int) -> None:
        asked = self._asked[importer]
        asked[name] = min(t_ns, asked.get(name, t_ns))

    def packages(self) -> dict[str, list[str]]:
        """Modules by package."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.loads:
            found[package_of(name)].append(name)
        return found

    def inclusive(self, names: Iterable[str]) -> set[str]:
        """`names` and all that was first loaded beneath one of them."""
        return self._closure(names, lambda name: self._beneath.get(name, ()))

    def reachable(self, without: set[str]) -> set[str]:
        """What the program would still load if `without` were gone."""
        found = self._closure(
            [ROOT], lambda name: [n for n in self._asked.get(name, ()) if n not in without]
        )
        return found - {ROOT}

    def _closure(self, names: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
        found = set(names)
        left = list(found)
        while left:
            new = [name for name in following(left.pop()) if name not in found]
            found.update(new)
            left.extend(new)
        return found

    def remove(self, names: Sequence[str]) -> Removal:
        """What would be saved without the modules `names`, and what would move where."""
        gone = set(names)
        beneath = self.inclusive(gone)
        stays = self.reachable(gone)
        moved = beneath & stays
        result = Removal(
            inclusive_ns=self.cost(beneath),
            exclusive_ns=self.cost(name for name in self.loads if name not in stays),
        )
        moves: dict[str, int] = defaultdict(int)
        for name, importer in self._next_importers(moved, stays - moved):
            moves[package_of(importer)] += self._own_ns.get(name, 0)
        result.moves_ns = {to: ns for to, ns in moves.items() if ns}
        return result

    def cost(self, names: Iterable[str]) -> int:
        """Nanoseconds of the modules' own loads."""
        return sum(self._own_ns.get(name, 0) for name in names)

    def _next_importers(self, moved: set[str], outside: set[str]) -> list[tuple[str, str]]:
        """Each moved module with the importer outside that would be the first to need it."""
        asks = [
            (t_ns, importer, name)
            for importer in (ROOT, *outside)
            for name, t_ns in self._asked.get(importer, {}).items()
            if name in moved
        ]
        left, found = set(moved), []
        for _, importer, name in sorted(asks):
            if name not in left:
                continue
            reached = {name}
            todo = [name]
            while todo:
                for asked in self._asked.get(todo.pop(), ()):
                    if asked in left and asked not in reached:
                        reached.add(asked)
                        todo.append(asked)
            left -= reached
            found += [(one, importer) for one in reached]
        return found
