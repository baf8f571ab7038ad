"""What to try, cheapest first, each with its evidence from one profile and how to test it.

The order is the cost of trying: take out a wait, change an argument, drop an import, place files,
keep compiled state, only then another way of starting processes.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator

from preroll.instruments.startup.base import Cause, ImportCost, Lever, Profile, Segment
from preroll.instruments.startup.labels import AFTER
from preroll.instruments.startup.text import mix, shorten, size

# A lever that cannot save this share of the start is not worth a line.
MIN_SHARE = 0.02
MIN_SECONDS = 0.05
MAX_IMPORTS = 3
NAME = 50

LOADS = re.compile(r"load|weight|checkpoint|shard|deseriali", re.IGNORECASE)
COMPILES = re.compile(r"compil|captur|autotun|inductor|jit|building engine|optimi[sz]", re.I)
WARMS = re.compile(r"warm|profil(e|ing)|dummy run", re.IGNORECASE)
READS = (Cause.READ, Cause.FAULT_IO, Cause.DISK)
PYTHON_OWN = frozenset(getattr(sys, "stdlib_module_names", ()))


def find(profile: Profile, ready: str | None) -> Iterator[Lever]:
    """The levers that this profile speaks for, in the order of the cost of trying them."""
    least_s = max(MIN_SHARE * profile.total_s, MIN_SECONDS)
    for lever in LEVERS:
        found = sorted(lever(profile, Test(profile, ready)), key=lambda one: -one.saving_s)
        yield from (one for one in found if one.saving_s >= least_s)


class Test:
    """Command lines of `preroll ablate` for this profile's command."""

    def __init__(self, profile: Profile, ready: str | None) -> None:
        self._command = shlex.join(profile.command)
        self._ready = f" --ready {shlex.quote(ready)}" if ready else ""

    def __call__(self, change: str) -> str:
        return f"preroll ablate{self._ready} {change} -- {self._command}"

    def instead(self, before: str) -> str:
        """The command with something done at the same time or before, in a shell."""
        inner = shlex.quote(f"{before} exec {self._command}")
        return self(f"--cache cold --cmd {shlex.quote(f'sh -c {inner}')}")


def spent(segment: Segment, *causes: Cause) -> float:
    return sum(segment.causes.get(cause, 0.0) for cause in causes)


def says(segment: Segment, what: re.Pattern[str]) -> bool:
    """Whether a stretch is called so; after a report nobody says what happens."""
    return bool(what.search(segment.name)) and not segment.name.startswith(AFTER)


def sleeps(profile: Profile, test: Test) -> Iterator[Lever]:
    for label in profile.labels:
        seconds = spent(label, Cause.SLEEP)
        yield Lever(
            title="take out a timed sleep, or wait for the event itself",
            evidence=f"{seconds:.2f} s asleep under '{shorten(label.name, NAME)}'",
            saving_s=seconds,
            ablate=None,
        )


def network(profile: Profile, test: Test) -> Iterator[Lever]:
    seconds = profile.causes.get(Cause.NETWORK, 0.0)
    under = max(profile.labels, key=lambda label: spent(label, Cause.NETWORK), default=None)
    where = f", most of it under '{shorten(under.name, NAME)}'" if under else ""
    yield Lever(
        title="start without asking the network (look up names and versions beforehand)",
        evidence=f"{seconds:.2f} s waiting on sockets that nobody in the tree served{where}",
        saving_s=seconds,
        ablate=test("--env HF_HUB_OFFLINE=1"),
    )


def crowded(profile: Profile, test: Test) -> Iterator[Lever]:
    queued, stolen = (profile.causes.get(c, 0.0) for c in (Cause.RUN_QUEUE, Cause.STOLEN))
    yield Lever(
        title="fewer threads, or more processors",
        evidence=f"{queued:.2f} s runnable without a processor, {stolen:.2f} s taken by the host",
        saving_s=queued + stolen,
        ablate=test("--env OMP_NUM_THREADS=1"),
    )


def load_direct(profile: Profile, test: Test) -> Iterator[Lever]:
    for label in profile.labels:
        computing = spent(label, Cause.CPU, Cause.DEVICE)
        if says(label, LOADS) and computing >= 0.5 * label.seconds and not label.lie:
            yield Lever(
                title="load straight to the device: no copy through host memory",
                evidence=f"{label.seconds:.2f} s under '{shorten(label.name, NAME)}', "
                f"{mix(label.causes)}: bytes were copied rather than waited for",
                saving_s=computing,
                ablate=None,
            )


def dead_imports(profile: Profile, test: Test) -> Iterator[Lever]:
    words = set(re.split(r"[^\w]+", " ".join(profile.command)))

    def is_candidate(cost: ImportCost) -> bool:
        # What the command itself is called after is what it is for.
        return cost.package not in PYTHON_OWN and cost.package not in words

    found = [cost for cost in profile.imports.values() if is_candidate(cost)]
    found.sort(key=lambda cost: -cost.exclusive_s)
    for cost in found[:MAX_IMPORTS]:
        moved = sum(cost.moves_to.values())
        more = f", {moved:.2f} s would only move" if moved >= 0.005 else ""
        yield Lever(
            title=f"drop `{cost.package}` if nothing needs it, or import it after ready",
            evidence=f"{cost.exclusive_s:.2f} s of its {cost.inclusive_s:.2f} s go with it{more};"
            f" first asked for by {cost.importer}",
            saving_s=cost.exclusive_s,
            ablate=test(f"--without-module {cost.package}"),
        )


def cold_files(profile: Profile, test: Test) -> Iterator[Lever]:
    cold = [file for file in profile.files if file.cold_bytes and file.path.startswith("/")]
    seconds = sum(file.seconds for file in cold)
    if not cold:
        return
    biggest = max(cold, key=lambda file: file.seconds)
    num_bytes = sum(file.cold_bytes for file in cold)
    faults = profile.causes.get(Cause.FAULT_IO, 0.0)
    how = "; most by page faults: one page cluster at a time" if faults > 0.5 * seconds else ""
    yield Lever(
        title="read cold files ahead, in large pieces, while the imports run",
        evidence=f"{seconds:.2f} s waiting for {size(num_bytes)} from storage,"
        f" {biggest.seconds:.2f} s of it for {biggest.path}{how}",
        saving_s=seconds,
        ablate=test.instead(f"cat {shlex.quote(biggest.path)} > /dev/null &"),
    )


def compiled(profile: Profile, test: Test) -> Iterator[Lever]:
    found = [one for one in profile.labels if one.wait == "compile" or says(one, COMPILES)]
    seconds = sum(
        spent(one, Cause.CPU, Cause.RUN_QUEUE, Cause.CHILD, Cause.DEVICE) for one in found
    )
    if found:
        longest = max(found, key=lambda one: one.seconds)
        yield Lever(
            title="keep compiled state between starts, and prove that it is used",
            evidence=f"{seconds:.2f} s computing, most under '{shorten(longest.name, NAME)}'",
            saving_s=seconds,
            ablate=test("--env TORCHINDUCTOR_CACHE_DIR=/var/cache/inductor"),
        )


def repeated_imports(profile: Profile, test: Test) -> Iterator[Lever]:
    seconds: dict[int, float] = {}
    for one in profile.slices:
        if one.module:
            seconds[one.pid] = seconds.get(one.pid, 0.0) + one.seconds
    least_s = MIN_SHARE * profile.total_s
    importing = [pid for pid, spent_s in seconds.items() if spent_s >= least_s]
    if len(importing) > 1:
        later = sum(spent_s for pid, spent_s in seconds.items() if pid != importing[0])
        yield Lever(
            title="fork workers from a process that has imported, instead of spawning them",
            evidence=f"{len(importing)} processes imported one after the other;"
            f" {later:.2f} s of imports came after the first had done its own",
            saving_s=later,
            ablate=test("--env VLLM_WORKER_MULTIPROC_METHOD=fork")
            if "vllm" in " ".join(profile.command)
            else None,
        )


def fork_server(profile: Profile, test: Test) -> Iterator[Lever]:
    seconds = sum(one.seconds for one in profile.slices if one.module)
    yield Lever(
        title="a fork server: imports done once, before anybody waits",
        evidence=f"{seconds:.2f} s on imports, the same in every start",
        saving_s=seconds if seconds >= 0.2 * profile.total_s else 0.0,
        ablate=None,
    )


def warm_up(profile: Profile, test: Test) -> Iterator[Lever]:
    found = [label for label in profile.labels if label.wait == "warm" or says(label, WARMS)]
    seconds = sum(label.seconds for label in found)
    if found:
        yield Lever(
            title="warm up with the shapes that will be served and no others",
            evidence=f"{seconds:.2f} s under '{shorten(found[0].name, NAME)}'",
            saving_s=seconds,
            ablate=None,
        )


LEVERS: tuple[Callable[[Profile, Test], Iterator[Lever]], ...] = (
    sleeps,
    network,
    crowded,
    load_direct,
    dead_imports,
    cold_files,
    compiled,
    repeated_imports,
    fork_server,
    warm_up,
)
