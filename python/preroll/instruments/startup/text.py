"""A profile on a terminal: causes, a waterfall of labels, imports, files, levers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preroll.instruments.starts_text import apportion
from preroll.instruments.startup import functions as sampled
from preroll.instruments.startup.base import Cause, ImportCost, Outcome, Profile, Segment, Slice
from preroll.instruments.startup.sums import cut

BAR_WIDTH = 40
NAME_WIDTH = 60
# Glyph and terminal colour of each cause; the unexplained is hatched.
GLYPHS: Mapping[str, tuple[str, int]] = {
    Cause.CPU: ("█", 34),
    Cause.RUN_QUEUE: ("▒", 33),
    Cause.STOLEN: ("▒", 31),
    Cause.READ: ("▓", 35),
    Cause.FAULT_IO: ("▓", 95),
    Cause.DISK: ("▓", 95),
    Cause.NETWORK: ("≈", 36),
    Cause.CHILD: ("c", 90),
    Cause.LOCK: ("░", 91),
    Cause.SLEEP: ("z", 90),
    Cause.DEVICE: ("■", 32),
    Cause.PIPE: ("│", 36),
    Cause.UNKNOWN: ("/", 37),
}
NAMES: Mapping[str, str] = {
    Cause.CPU: "on CPU",
    Cause.RUN_QUEUE: "run queue",
    Cause.STOLEN: "stolen by host",
    Cause.READ: "read",
    Cause.FAULT_IO: "page-fault I/O",
    Cause.DISK: "disk, metadata",
    Cause.NETWORK: "network, poll",
    Cause.CHILD: "child",
    Cause.LOCK: "lock",
    Cause.SLEEP: "sleep",
    Cause.DEVICE: "device call",
    Cause.PIPE: "pipe",
    Cause.UNKNOWN: "unknown",
}
MAX_IMPORTS = 12
MAX_FUNCTIONS = 8
# A function is named beside a stretch when it took this share of its processor time.
MIN_TOP_SHARE = 0.2
MIN_IMPORT_SHARE = 0.01
MODES = {"tracefs": "kernel tracepoints", "proc": "/proc sampled", "off": "stamps only"}


def report(profile: Profile, *, colours: bool = False) -> list[str]:
    """The whole report, a string per line."""
    parts = [
        list(header(profile)),
        list(cause_rows(profile)),
        list(functions(profile)),
        list(waterfall(profile, colours)),
        list(gap(profile)),
        list(imports(profile)),
        list(files(profile)),
        list(processes(profile)),
        list(levers(profile)),
        [f"note: {printable(note)}" for note in profile.notes],
    ]
    return [line for part in parts if part for line in (*part, "")][:-1]


def header(profile: Profile) -> Iterator[str]:
    yield shorten(" ".join(profile.command), 2 * NAME_WIDTH)
    after = f"after {profile.total_s:.3f} s ({MODES[profile.mode]})"
    if profile.outcome is Outcome.READY:
        yield f"ready {after}"
    else:
        yield f"{profile.outcome} {after}: {profile.message}; this is a partial profile"


def rows(parts: Mapping[str, float], total_s: float) -> Iterator[tuple[str, float]]:
    """Each part with its seconds to the millisecond, so that what is shown sums to the total."""
    shown = apportion([round(s * 1e9) for s in parts.values()], round(total_s * 1000))
    yield from zip(parts, (ms / 1000 for ms in shown), strict=True)


def cause_rows(profile: Profile) -> Iterator[str]:
    total_s = profile.total_s or 1.0
    for cause, shown_s in rows(profile.causes, profile.total_s):
        share = profile.causes[cause] / total_s
        bar = "█" * round(share * BAR_WIDTH)
        yield f"  {NAMES[cause]:<15}{shown_s:9.3f} s {share:6.1%}  {bar}".rstrip()
    yield f"  {'total':<15}{round(profile.total_s * 1000) / 1000:9.3f} s"


def functions(profile: Profile) -> Iterator[str]:
    """Where the processor time went, by the function that ran."""
    found = [one for one in profile.functions if one.own_s >= 0.01 * profile.total_s]
    if not found:
        return
    named_s = sum(one.seconds for one in profile.slices if one.stack)
    yield f"on CPU by Python function, as sampled ({named_s:.3f} s): itself, with what it calls"
    for one in found[:MAX_FUNCTIONS]:
        where = shorten(f"{one.name} ({sampled.place(one.file)}:{one.line})", 2 * NAME_WIDTH)
        yield f"  {one.own_s:9.3f} s {one.whole_s:9.3f} s  {where}"


def detail(profile: Profile, label: Segment) -> str:
    """The causes of a stretch, and which function had most of its processor time."""
    causes = mix(label.causes)
    if label.causes.get(Cause.CPU, 0.0) < 0.2 * label.seconds:
        return causes
    start_ns, end_ns = (profile.spawned_ns + round(s * 1e9) for s in (label.start_s, label.end_s))
    top = sampled.top(cut(profile.slices, start_ns, end_ns))
    if top is None or top[1] < MIN_TOP_SHARE:
        return causes
    function, share = top
    name = shorten(f"{function.name} ({sampled.place(function.file)})", NAME_WIDTH)
    return f"{causes}; {share:.0%} of its CPU in {name}"


def mix(causes: Mapping[str, float], least: float = 0.05) -> str:
    """The causes of a stretch in words, largest first."""
    total_s = sum(causes.values()) or 1.0
    ranked = sorted(causes.items(), key=lambda item: -item[1])
    return ", ".join(
        f"{NAMES[cause]} {seconds / total_s:.0%}"
        for cause, seconds in ranked
        if seconds >= least * total_s
    )


def waterfall(profile: Profile, colours: bool) -> Iterator[str]:
    if not profile.labels or not profile.total_s:
        return
    yield f"  {'from':>8}{'seconds':>9}  {'':<{BAR_WIDTH}}  what the output says"
    for label in profile.labels:
        bar = strip(profile, label, colours)
        wait = f"[{label.wait}] " if label.wait else ""
        name = shorten(wait + label.name, NAME_WIDTH)
        yield f"  {label.start_s:8.3f}{label.seconds:9.3f}  {bar}  {name}"
        causes = detail(profile, label)
        if causes:
            yield f"  {'':17}  {'':<{BAR_WIDTH}}    {causes}"
        if label.lie:
            yield f"  {'':17}  {'':<{BAR_WIDTH}}  ! {label.lie}"
    used = [cause for cause in Cause if cause in profile.causes]
    yield "  " + "  ".join(f"{glyph(cause, colours)} {NAMES[cause]}" for cause in used)


def glyph(cause: str, colours: bool) -> str:
    sign, colour = GLYPHS[cause]
    return f"\x1b[{colour}m{sign}\x1b[0m" if colours else sign


def strip(profile: Profile, label: Segment, colours: bool) -> str:
    """The label's place in the start; each column shows the cause that took most of it."""
    column_ns = profile.total_s * 1e9 / BAR_WIDTH
    first = min(int(label.start_s * 1e9 / column_ns), BAR_WIDTH - 1)
    last = max(first + 1, round(label.end_s * 1e9 / column_ns))
    start_ns, end_ns = (profile.spawned_ns + round(s * 1e9) for s in (label.start_s, label.end_s))
    cells = []
    for column in range(first, min(last, BAR_WIDTH)):
        low = max(start_ns, profile.spawned_ns + round(column * column_ns))
        high = min(end_ns, profile.spawned_ns + round((column + 1) * column_ns))
        cells.append(glyph(dominant(profile.slices, low, high), colours))
    return " " * first + "".join(cells) + " " * (BAR_WIDTH - first - len(cells))


def dominant(slices: Sequence[Slice], from_ns: int, to_ns: int) -> str:
    totals: dict[str, int] = {}
    for one in cut(slices, from_ns, max(to_ns, from_ns + 1)):
        totals[one.cause] = totals.get(one.cause, 0) + one.end_ns - one.start_ns
    return max(totals, key=lambda cause: totals[cause]) if totals else Cause.UNKNOWN


def shorten(text: str, width: int) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str) -> str:
    """Without control characters: what a command prints must not steer a terminal or a page."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def gap(profile: Profile) -> Iterator[str]:
    found = profile.gap
    if found is not None and found.seconds >= 0.05 * profile.total_s:
        share = found.seconds / profile.total_s
        after = shorten(found.after, NAME_WIDTH)
        yield f"longest silence: {found.seconds:.3f} s ({share:.0%}) after '{after}'"
        yield f"  {mix(found.causes)}"


def sentence(cost: ImportCost) -> str:
    """What the removal of a package would do."""
    text = f"inclusive {cost.inclusive_s:.2f} s, exclusive {cost.exclusive_s:.2f} s"
    rest = moved(cost)
    return f"{text}; {rest}" if rest else text


def moved(cost: ImportCost) -> str:
    """Who would pay for what a package's removal does not save."""
    moves = [(to, s) for to, s in cost.moves_to.items() if s >= 0.005]
    text = ", ".join(f"{s:.2f} s would move to {to}" for to, s in moves[:3])
    rest = sum(s for _, s in moves[3:])
    return text + (f", {rest:.2f} s to others" if rest >= 0.005 else "")


def imports(profile: Profile) -> Iterator[str]:
    least_s = MIN_IMPORT_SHARE * profile.total_s
    found = [cost for cost in profile.imports.values() if cost.inclusive_s >= least_s]
    if found:
        yield "imports (what a package costs, and what its removal would save)"
    for cost in found[:MAX_IMPORTS]:
        yield f"  {cost.package:<22}{sentence(cost)}  (by {cost.importer})"


def files(profile: Profile) -> Iterator[str]:
    found = [file for file in profile.files if file.seconds >= 0.01 * profile.total_s]
    if found:
        yield "files that were waited for"
    for file in found[:10]:
        cold = f"{size(file.cold_bytes):>9} from storage"
        yield f"  {file.seconds:9.3f} s  {cold}  {printable(file.path)}"


def size(num_bytes: int) -> str:
    amount, unit = float(num_bytes), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def processes(profile: Profile) -> Iterator[str]:
    if len(profile.processes) < 2:
        return
    yield "processes on the critical path"
    for one in profile.processes:
        seconds = sum(one.causes.values())
        if seconds >= 0.005 * profile.total_s:
            command = shorten(one.command or f"process {one.pid}", NAME_WIDTH)
            yield f"  {one.start_s:8.3f} to {one.end_s:8.3f}  {seconds:9.3f} s  {command}"


def levers(profile: Profile) -> Iterator[str]:
    if profile.levers:
        yield "what to try, in the order of cost"
    for number, lever in enumerate(profile.levers, 1):
        saving = f" (up to {lever.saving_s:.2f} s)" if lever.saving_s >= 0.005 else ""
        yield f"  {number}. {lever.title}{saving}"
        yield f"     because {lever.evidence}"
        if lever.ablate:
            yield f"     test it: {lever.ablate}"
