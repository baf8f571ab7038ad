"""The timeline of a profile as SVG: milestones, processes, imports, labels on one axis."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from preroll.instruments.startup.base import Cause, Profile, Slice
from preroll.instruments.startup.functions import place
from preroll.instruments.startup.load_graph import package_of
from preroll.instruments.startup.profile_file import coarse
from preroll.instruments.startup.text import NAMES, mix, printable, shorten

COLOURS = {
    Cause.CPU: "#3b6fd4",
    Cause.RUN_QUEUE: "#e0a526",
    Cause.STOLEN: "#b5651d",
    Cause.READ: "#8e4ec6",
    Cause.FAULT_IO: "#c05ad0",
    Cause.DISK: "#6b4aa0",
    Cause.NETWORK: "#1d9aa8",
    Cause.CHILD: "#7d8590",
    Cause.LOCK: "#d1495b",
    Cause.SLEEP: "#b9c0c9",
    Cause.DEVICE: "#3f9d4e",
    Cause.PIPE: "#5fb3b3",
    Cause.UNKNOWN: "url(#hatched)",
}
HATCHED = (
    '<defs><pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff"/>'
    '<line x1="0" y1="0" x2="0" y2="6" stroke="#c33" stroke-width="2"/></pattern></defs>'
)
WIDTH, NAMES_WIDTH = 1160, 200
ROW, BAR = 24, 16
AXIS = 34
# Between a bar and its name; the column of times before it; how wide a letter is on average.
GAP, TIMES_WIDTH, LETTER = 6, 62, 6.2
SHORTEST_NAME = 12
MAX_BARS = 3000
MAX_PROCESSES = 12
MAX_LABELS = 40
TICKS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
)


def escape(text: str) -> str:
    return html.escape(printable(text))


def key(cause: str) -> str:
    """The colour of a cause as a small square."""
    colour = COLOURS[Cause(cause)]
    if colour.startswith("url"):
        colour = "repeating-linear-gradient(45deg, #fff 0 3px, #c33 3px 5px)"
    return f'<span class="key" style="background: {colour}"></span>'


class Scale:
    """Seconds since spawn to a horizontal place."""

    def __init__(self, total_s: float) -> None:
        self.total_s = total_s

    def __call__(self, seconds: float) -> float:
        return NAMES_WIDTH + (WIDTH - NAMES_WIDTH - 10) * seconds / self.total_s


def timeline(profile: Profile) -> str:
    """All rows; the critical path is outlined in the lane of each process that it passes."""
    x = Scale(profile.total_s)
    slices = coarse(profile.slices, MAX_BARS)
    rows: list[str] = []
    y = AXIS
    for pid, name in _lanes(profile):
        mine = [one for one in slices if pid is None or one.pid == pid]
        rows.append(_name(y, name))
        rows += _bars(profile, x, y, mine)
        y += ROW
    if any(one.module for one in slices):
        rows.append(_name(y, "import, by package"))
        rows += _imports(profile, x, y, slices)
        y += ROW
    y += 6
    for label in profile.labels[:MAX_LABELS]:
        rows += _label(profile, x, y, label.start_s, label.end_s, label.name, label.lie)
        y += ROW - 4
    height = y + 6
    frame = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="timeline of the start">'
    return "".join(
        (frame, HATCHED, *_axis(x, height), *_milestones(profile, x, height), *rows, "</svg>")
    )


def _lanes(profile: Profile) -> list[tuple[int | None, str]]:
    if len(profile.processes) < 2:
        return [(None, "critical path")]
    dearest = sorted(profile.processes, key=lambda p: -sum(p.causes.values()))[:MAX_PROCESSES]
    kept = {process.pid for process in dearest}
    return [
        (p.pid, short(p.command) or f"process {p.pid}") for p in profile.processes if p.pid in kept
    ]


def short(command: str) -> str:
    """The program of a command line; of an interpreter what it runs."""
    words = [word.rpartition("/")[2] for word in command.split(" ")]
    if words[0].startswith("python") and len(words) > 1:
        rest = [word for word in words[1:] if word not in ("-P", "-u", "-m", "-I", "-S", "-E")]
        return " ".join(rest)
    return " ".join(words)


def _name(y: int, name: str) -> str:
    return f'<text x="0" y="{y + 12}">{escape(shorten(name, 30))}</text>'


def _bars(profile: Profile, x: Scale, y: int, slices: Sequence[Slice]) -> Iterator[str]:
    for one in slices:
        start_s, end_s = ((t_ns - profile.spawned_ns) / 1e9 for t_ns in (one.start_ns, one.end_ns))
        details = [NAMES[one.cause], f"{end_s - start_s:.4f} s at {start_s:.3f}"]
        details += [f"import {one.module}"] if one.module else []
        details += [f"in {one.stack[0].name} ({place(one.stack[0].file)})"] if one.stack else []
        details += [one.file] if one.file else []
        yield (
            f'<rect x="{x(start_s):.2f}" y="{y}" width="{x(end_s) - x(start_s):.2f}" '
            f'height="{BAR}" fill="{COLOURS[one.cause]}"><title>{escape(" · ".join(details))}'
            "</title></rect>"
        )
    yield from _outline(profile, x, y, slices)


def _outline(profile: Profile, x: Scale, y: int, slices: Sequence[Slice]) -> Iterator[str]:
    """One frame around each contiguous run of the path in this lane."""
    start_ns = end_ns = None
    for one in (*slices, None):
        if one is not None and one.start_ns == end_ns:
            end_ns = one.end_ns
            continue
        if start_ns is not None and end_ns is not None:
            left, right = (x((t - profile.spawned_ns) / 1e9) for t in (start_ns, end_ns))
            if right - left >= 1:
                yield (
                    f'<rect class="path" x="{left:.2f}" y="{y}" width="{right - left:.2f}" '
                    f'height="{BAR}" rx="2"/>'
                )
        if one is not None:
            start_ns, end_ns = one.start_ns, one.end_ns


def _imports(profile: Profile, x: Scale, y: int, slices: Sequence[Slice]) -> Iterator[str]:
    """Contiguous stretches within one package, named where there is room."""
    package, since, until = "", 0, 0
    for one in (*slices, None):
        now = package_of(one.module) if one is not None and one.module else ""
        if one is not None and now == package and one.start_ns == until:
            until = one.end_ns
            continue
        if package:
            left, right = (x((t - profile.spawned_ns) / 1e9) for t in (since, until))
            name = escape(package) if right - left > 7 * len(package) else ""
            yield (
                f'<rect x="{left:.2f}" y="{y}" width="{right - left:.2f}" height="{BAR}" '
                f'fill="#8884" stroke="#8888" stroke-width=".5"><title>import {escape(package)} · '
                f"{(until - since) / 1e9:.3f} s</title></rect>"
                f'<text x="{left + 3:.2f}" y="{y + 12}">{name}</text>'
            )
        if one is not None:
            package, since, until = now, one.start_ns, one.end_ns


def _label(
    profile: Profile, x: Scale, y: int, start_s: float, end_s: float, name: str, lie: str | None
) -> Iterator[str]:
    found = next(one for one in profile.labels if one.start_s == start_s)
    left, right = x(start_s), x(end_s)
    yield f'<text x="0" y="{y + 10}" class="soft">{start_s:9.3f} s</text>'
    now = left
    for cause, seconds in found.causes.items():
        width = (right - left) * seconds / ((end_s - start_s) or 1.0)
        yield (
            f'<rect x="{now:.2f}" y="{y}" width="{width:.2f}" height="12" '
            f'fill="{COLOURS[Cause(cause)]}"><title>{escape(mix(found.causes))}</title></rect>'
        )
        now += width
    style = ' style="fill: var(--alarm)"' if lie else ""
    # On the side that has more room, and no more of it than fits there; the lie is kept whole.
    rooms = (WIDTH - right - GAP, left - GAP - TIMES_WIDTH)
    text = escape(_fitting(name, lie, max(rooms)))
    if rooms[0] >= min(rooms[1], LETTER * len(text)):
        yield f'<text x="{right + GAP:.2f}" y="{y + 10}"{style}>{text}</text>'
    else:
        yield f'<text x="{left - GAP:.2f}" y="{y + 10}" text-anchor="end"{style}>{text}</text>'


def _fitting(name: str, lie: str | None, room: float) -> str:
    more = f"  ! {lie}" if lie else ""
    return shorten(name, max(int(room / LETTER) - len(more), SHORTEST_NAME)) + more


def _axis(x: Scale, height: int) -> Iterator[str]:
    step = next((tick for tick in TICKS if x.total_s / tick <= 12), TICKS[-1])
    yield '<g class="ticks">'
    for number in range(int(x.total_s / step) + 1):
        place = x(number * step)
        yield (
            f'<line class="rule" x1="{place:.2f}" x2="{place:.2f}" y1="14" y2="{height}"/>'
            f'<text x="{place + 2:.2f}" y="10">{number * step:g} s</text>'
        )
    yield "</g>"


def _milestones(profile: Profile, x: Scale, height: int) -> Iterator[str]:
    marks = [(profile.lines[0][0], "first line")] if profile.lines else []
    marks.append((profile.total_s, "ready" if profile.outcome == "ready" else profile.outcome))
    for at_s, name in marks:
        place = x(min(max(at_s, 0.0), profile.total_s))
        anchor = "end" if place > WIDTH * 0.85 else "start"
        yield (
            f'<line class="mark" x1="{place:.2f}" x2="{place:.2f}" y1="14" y2="{height}"/>'
            f'<text x="{place:.2f}" y="26" text-anchor="{anchor}" font-weight="600">{name}</text>'
        )
