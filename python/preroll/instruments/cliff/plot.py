"""The plot of a cliff: failures going up and down, and below them the queue and utilisation.

One SVG without script, styles or fonts of its own: it can stand in a page or be a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from preroll.instruments.cliff.search import Cliff, Seen

WIDTH, LEFT, RIGHT = 720, 52, 16
TOP, SHARES_HEIGHT, BESIDE_HEIGHT, BETWEEN, BOTTOM = 44, 240, 90, 64, 44
UP, DOWN, QUEUE, IDLE, INK = "#1565c0", "#ef6c00", "#555", "#c8c8c8", "#333"
MARKS = {"exceeds baseline": "#2e7d32", "material": "#6a1b9a", "collapse": "#c62828"}
MAX_TICKS = 12


@dataclass(frozen=True, slots=True)
class Beside:
    """What was seen at a level besides failures: the server's own queue (mean of some looks at
    it), and requests per second."""

    queue: Mapping[int, float] = field(default_factory=dict)
    per_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle with its own scale, values from zero up."""

    top: float
    height: float
    max_x: float
    max_y: float

    def x(self, value: float) -> float:
        return LEFT + value / self.max_x * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - value / self.max_y)

    def axes(self, title: str, unit: str) -> Iterator[str]:
        base = self.top + self.height
        yield f"<text x='{LEFT}' y='{self.top - 10:.0f}'>{escape(title)}</text>"
        for value in _ticks(self.max_y, 5):
            y = self.y(value)
            yield _path(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", "#eee")
            yield _text(LEFT - 6, y + 4, f"{value:g}{unit}", "end")
        for value in _ticks(self.max_x, MAX_TICKS, whole=True):
            yield _path(f"M{self.x(value):.1f} {base:.1f}v4", INK)
            yield _text(self.x(value), base + 17, f"{value:g}", "middle")
        yield _path(f"M{LEFT} {self.top:.1f}V{base:.1f}H{WIDTH - RIGHT}", INK)


def plot(cliff: Cliff, beside: Beside) -> str:
    """Failures over requests in flight with their intervals, thresholds as upright lines.

    Utilisation, here throughput over the best one seen, is grey on purpose: it is high long before
    the cliff and says nothing of it.
    """
    max_x = float(max((seen.level for seen in (*cliff.up, *cliff.down)), default=1))
    shares = Panel(TOP, SHARES_HEIGHT, max_x, 100.0)
    below = TOP + SHARES_HEIGHT + BETWEEN
    deepest = max(beside.queue.values(), default=0.0)
    lower = Panel(below, BESIDE_HEIGHT, max_x, _above(deepest) if deepest else 100.0)
    parts = [
        *shares.axes("failures, % of requests, over requests in flight", "%"),
        *_thresholds(cliff, shares),
        *_bars(shares, cliff.up),
        _line(shares, _mean(cliff.down), DOWN, "6 3"),
        _line(shares, [(seen.level, 100 * seen.share) for seen in cliff.up], UP),
        *_dots(shares, cliff.up, UP),
        *_dots(shares, cliff.down, DOWN),
        *_beside(lower, beside, deepest),
    ]
    height = below + BESIDE_HEIGHT + BOTTOM
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' "
        f"font-family='sans-serif' font-size='12' role='img' fill='{INK}'>"
        f"<rect width='{WIDTH}' height='{height}' fill='#fff'/>{_legend()}{''.join(parts)}</svg>"
    )


def _legend() -> str:
    up = f"<text x='{WIDTH - RIGHT}' y='16' text-anchor='end'>"
    return (
        f"{up}<tspan fill='{UP}'>● load going up, 99 % intervals</tspan>"
        f"<tspan dx='14' fill='{DOWN}'>● going down without a pause</tspan></text>"
    )


def _thresholds(cliff: Cliff, panel: Panel) -> Iterator[str]:
    """Each where it was found, its interval as a band; named at the top left, where no server
    fails yet."""
    marks = [(t.name, MARKS[t.name], t.level, t.low, t.high) for t in cliff.thresholds if t.level]
    if cliff.recovery is not None:
        marks.append(("recovery", DOWN, cliff.recovery, None, None))
    if cliff.limit is not None:
        marks.append(("max_concurrency", INK, cliff.limit, None, None))
    for number, (name, colour, level, low, high) in enumerate(marks):
        x = panel.x(level)
        if low is not None and high is not None and high > low:
            width = panel.x(high) - panel.x(low)
            box = f"x='{panel.x(low):.1f}' y='{panel.top}' width='{width:.1f}'"
            yield f"<rect {box} height='{panel.height}' fill='{colour}' opacity='0.12'/>"
        yield _path(f"M{x:.1f} {panel.top}v{panel.height}", colour, "2 3")
        yield _text(LEFT + 8, panel.top + 16 + 16 * number, f"{name} {level}", "start", colour)


def _beside(panel: Panel, beside: Beside, deepest: float) -> Iterator[str]:
    none = (
        "nothing waited in the server's own queue" if beside.queue else "no queue seen (/metrics)"
    )
    what = "requests in the server's own queue" if deepest else none
    best = max(beside.per_s.values(), default=0.0)
    yield from panel.axes(what, "")
    if best:
        # Its own scale: all of the height is the best throughput.
        rates = [(n, panel.max_y * rate / best) for n, rate in sorted(beside.per_s.items())]
        yield _line(panel, rates, IDLE, "3 3")
        warning = (
            f"utilisation (100 % = {best:.3g} requests/s): high long before the cliff, no guide"
        )
        yield _text(WIDTH - RIGHT, panel.top - 10, warning, "end", "#999")
    if deepest:
        yield _line(panel, sorted(beside.queue.items()), QUEUE)
    yield _text(WIDTH - RIGHT, panel.top + panel.height + 34, "requests in flight", "end")


def _bars(panel: Panel, seen: Sequence[Seen]) -> Iterator[str]:
    for s in seen:
        x = panel.x(s.level)
        yield _path(f"M{x:.1f} {panel.y(100 * s.high):.1f}V{panel.y(100 * s.low):.1f}", "#90b8e0")


def _dots(panel: Panel, seen: Sequence[Seen], colour: str) -> Iterator[str]:
    for s in seen:
        x, y = panel.x(s.level), panel.y(100 * s.share)
        yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>"


def _mean(seen: Sequence[Seen]) -> list[tuple[float, float]]:
    """Share in % by level: a level that was reached twice on the way down is one point."""
    by_level: dict[int, list[Seen]] = {}
    for s in seen:
        by_level.setdefault(s.level, []).append(s)
    return [
        (float(level), 100 * sum(s.share * s.count for s in those) / sum(s.count for s in those))
        for level, those in sorted(by_level.items())
    ]


def _line(
    panel: Panel, points: Sequence[tuple[float, float]], colour: str, dashes: str = ""
) -> str:
    path = " ".join(f"{panel.x(x):.1f},{panel.y(y):.1f}" for x, y in points)
    dash = f" stroke-dasharray='{dashes}'" if dashes else ""
    return f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'{dash}/>"


def _path(path: str, colour: str, dashes: str = "") -> str:
    dash = f" stroke-dasharray='{dashes}'" if dashes else ""
    return f"<path d='{path}' fill='none' stroke='{colour}'{dash}/>"


def _text(x: float, y: float, words: str, anchor: str, colour: str = INK) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{colour}'>"
        f"{escape(words)}</text>"
    )


def _above(value: float) -> float:
    """The end of a scale: the last tick at or above `value`."""
    step = _step(value, 4, whole=False)
    return step * math.ceil(value / step)


def _ticks(top: float, most: int, whole: bool = False) -> list[float]:
    step = _step(top, most, whole)
    return [i * step for i in range(math.floor(top / step + 1e-9) + 1)]


def _step(top: float, most: int, whole: bool) -> float:
    """The least of 1, 2, 5 × 10ⁿ that gives no more than `most` steps."""
    size = 10.0 ** math.floor(math.log10(top / most)) if top > 0 else 1.0
    step = next(size * f for f in (1, 2, 5, 10) if top / (size * f) <= most)
    return max(1.0, step) if whole else step
