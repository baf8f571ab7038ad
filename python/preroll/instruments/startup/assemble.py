"""From what a run showed to a `Profile` whose rows sum to the total."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from preroll.core import Phase
from preroll.engines import bill
from preroll.engines.guess import engine_marks
from preroll.instruments.startup import functions, imports, inodes, levers
from preroll.instruments.startup.attribution import Modules, attribute
from preroll.instruments.startup.base import Cause, Profile, Slice
from preroll.instruments.startup.hook import PythonProcess
from preroll.instruments.startup.labels import Said, labels
from preroll.instruments.startup.launch import Options
from preroll.instruments.startup.recorder import Recording
from preroll.instruments.startup.sums import by_cause, file_costs, gap_of, process_times, segments
from preroll.instruments.startup.watch import Seen

NO_RECORDING = Recording("off", (), {}, {}, ())
# So many lines are kept in a profile; a chatty command prints more than anybody reads.
MAX_LINES = 2000


def assemble(
    options: Options, argv: tuple[str, ...], seen: Seen, processes: Sequence[PythonProcess]
) -> Profile:
    """The profile of one run. `processes`: what their import hooks recorded."""
    total_s = (seen.ready_ns - seen.spawned_ns) / 1e9
    recording = seen.recording or NO_RECORDING
    modules = Modules(processes, seen.ready_ns)
    slices, own_ns = _slices(seen, recording, processes, modules)
    check_tiles(slices, seen.spawned_ns, seen.ready_ns)
    said = [
        Said(min((line.t_ns - seen.spawned_ns) / 1e9, total_s), line.text) for line in seen.lines
    ]
    phases = _phases(options, argv, seen)
    named = labels(said, total_s, phases)
    profile = Profile(
        command=options.command,
        outcome=seen.outcome,
        message=seen.message,
        mode=recording.mode if seen.recording else seen.mode,
        reason=seen.reason,
        total_s=total_s,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        causes=by_cause(slices),
        labels=tuple(segments(named, slices, seen.spawned_ns, total_s)),
        imports=imports.costs(processes, own_ns, seen.spawned_ns),
        functions=functions.times(slices),
        gap=gap_of(said, slices, seen.spawned_ns, total_s),
        files=tuple(file_costs(slices)),
        processes=tuple(process_times(slices, recording.commands, seen.spawned_ns)),
        notes=tuple(_notes(options, seen, recording, processes)),
        lines=tuple((round(one.t_s, 6), one.text) for one in _some(said)),
        slices=tuple(slices),
        cpu_s=seen.cpu_s,
        spawned_ns=seen.spawned_ns,
    )
    return replace(profile, levers=tuple(levers.find(profile, options.ready)))


def _slices(
    seen: Seen, recording: Recording, processes: Sequence[PythonProcess], modules: Modules
) -> tuple[list[Slice], Mapping[int, Mapping[str, int]]]:
    """The slices with their modules and file names, and what each module's own load cost."""
    own_ns: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    if not recording.slices:
        for stretches in modules.of_thread.values():
            for stretch in stretches:
                end_ns = min(stretch.end_ns, seen.ready_ns)
                own_ns[stretch.pid][stretch.module] += max(0, end_ns - stretch.start_ns)
        whole = Slice(seen.spawned_ns, seen.ready_ns, Cause.UNKNOWN, 0, 0)
        return ([whole] if seen.ready_ns > seen.spawned_ns else []), own_ns
    slices = []
    for one, pid in attribute(recording.slices, modules, recording.threads):
        slices.append(one)
        if one.module is not None:
            own_ns[pid][one.module] += one.end_ns - one.start_ns
    slices = list(functions.named(slices, recording.samples))
    return inodes.named(slices, processes), own_ns


def check_tiles(slices: Sequence[Slice], from_ns: int, to_ns: int) -> None:
    """The promise of every profile: slices are contiguous, and so sum to the total exactly."""
    now_ns = from_ns
    for one in slices:
        assert one.start_ns == now_ns, f"slice at {one.start_ns} does not follow {now_ns}"
        assert one.end_ns > one.start_ns, f"empty slice at {one.start_ns}"
        now_ns = one.end_ns
    assert now_ns == to_ns, f"slices end at {now_ns}, not at {to_ns}"


def _phases(options: Options, argv: tuple[str, ...], seen: Seen) -> tuple[Phase, ...]:
    """A known engine's phases, in ns since spawn; () where its lines were not seen."""
    marks = engine_marks(argv, options.engine)
    if not marks:
        return ()
    lines = [bill.Line(line.t_ns - seen.spawned_ns, line.text) for line in seen.lines]
    start = bill.bill("profile", "profile", 0, seen.ready_ns - seen.spawned_ns, lines, marks)
    return start.phases if len(start.phases) > 1 else ()


def _some(said: Sequence[Said]) -> Sequence[Said]:
    half = MAX_LINES // 2
    return said if len(said) <= MAX_LINES else [*said[:half], *said[-half:]]


def _notes(
    options: Options, seen: Seen, recording: Recording, processes: Sequence[PythonProcess]
) -> Iterator[str]:
    yield from seen.notes
    yield from recording.notes
    if seen.recording and recording.mode == "proc" and options.recorder != "proc":
        yield f"sampled from /proc, as tracepoints cannot be had: {seen.reason}"
    if seen.lines_missed:
        yield f"{seen.lines_missed} lines between the first and the last are not in this profile"
    if options.hook:
        recorded = {process.pid for process in processes}
        for pid, command in recording.commands.items():
            program = command.split(" ")[0].rpartition("/")[2]
            if program.startswith("python") and pid not in recorded:
                yield f"process {pid} recorded no imports (flags -I, -E or -S keep hooks out)"
