"""Exclusive and inclusive costs against what a removal would really do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from preroll.instruments.startup.hook import Load, Request
from preroll.instruments.startup.load_graph import LoadGraph


def graph(loads: list[tuple[str, str, int]], later: list[tuple[str, str]]) -> LoadGraph:
    """`loads`: (importer, module, own cost) in order; `later`: requests that were answered."""
    made = [Load(name, importer, 1, at) for at, (importer, name, _) in enumerate(loads)]
    first = [Request(load.start_ns, load.importer, load.name) for load in made]
    after = [Request(1000 + at, importer, name) for at, (importer, name) in enumerate(later)]
    return LoadGraph(made, [*first, *after], {name: own for _, name, own in loads})


def test_a_dead_component_that_only_got_to_a_shared_import_first_saves_little() -> None:
    loads = [("", "dead", 70), ("dead", "shared", 300), ("shared", "deep", 3), ("", "live", 5)]
    removal = graph(loads, [("live", "shared")]).remove(["dead"])
    assert removal.inclusive_ns == 373
    assert removal.exclusive_ns == 70
    assert removal.moves_ns == {"live": 303}


def test_what_only_a_package_reaches_goes_with_it_even_through_several_of_its_modules() -> None:
    loads = [("", "a", 1), ("a", "a.x", 2), ("a.x", "lib", 10), ("a", "a.y", 4)]
    # lib is asked for by two modules: neither dominates it, the package does.
    made = graph(loads, [("a.y", "lib")])
    assert made.remove(["a", "a.x", "a.y"]).exclusive_ns == 17
    assert made.remove(["a.x"]).exclusive_ns == 2


def test_the_first_who_asks_again_pays() -> None:
    loads = [("", "a", 1), ("a", "lib", 10), ("", "b", 1), ("", "c", 1)]
    removal = graph(loads, [("c", "lib"), ("b", "lib")]).remove(["a"])
    assert removal.moves_ns == {"c": 10}


def test_the_program_itself_may_be_the_next_importer() -> None:
    removal = graph([("", "a", 1), ("a", "lib", 10)], [("", "lib")]).remove(["a"])
    assert removal.moves_ns == {"": 10}


def test_a_submodule_keeps_its_parent_package_loaded() -> None:
    loads = [("", "a", 1), ("a", "lib", 10), ("a", "lib.part", 2), ("", "b", 1)]
    removal = graph(loads, [("b", "lib.part")]).remove(["a"])
    assert removal.exclusive_ns == 1
    assert removal.moves_ns == {"b": 12}


def test_cycles_end() -> None:
    loads = [("", "a", 1), ("a", "b", 2), ("b", "c", 4)]
    assert graph(loads, [("c", "a"), ("b", "a")]).remove(["b"]).exclusive_ns == 6


names = st.sampled_from("abcdefgh")


@given(
    st.lists(st.tuples(names, st.integers(1, 100)), min_size=1, unique_by=lambda one: one[0]),
    st.data(),
)
def test_exclusive_is_what_an_exhaustive_search_without_it_does_not_find(
    modules: list[tuple[str, int]], data: st.DataObject
) -> None:
    known = [""]
    loads = []
    for name, own in modules:
        loads.append((data.draw(st.sampled_from(known)), name, own))
        known.append(name)
    pairs = st.tuples(st.sampled_from(known), st.sampled_from(known[1:]))
    later = data.draw(st.lists(pairs, max_size=12))
    gone = data.draw(st.sampled_from(known[1:]))
    edges = {(importer, name) for importer, name, _ in loads} | set(later)
    found = {""}
    for _ in known:
        found |= {name for importer, name in edges if importer in found and name != gone}
    removal = graph(loads, later).remove([gone])
    assert removal.exclusive_ns == sum(own for name, own in modules if name not in found)
    assert (
        removal.inclusive_ns == removal.exclusive_ns + sum(removal.moves_ns.values())
        or removal.exclusive_ns > 0
    )
    assert sum(removal.moves_ns.values()) <= removal.inclusive_ns
