"""A result as one self-contained page with plots of our own; no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from preroll.instruments.load.records import Raw
from preroll.instruments.load.report import markdown
from preroll.instruments.load.result import Result, ttft_ms

WIDTH, HEIGHT, MARGIN = 640, 220, 44
STYLE = "body{font:15px system-ui;max-width:60rem;margin:2rem auto}pre{white-space:pre-wrap}"
Point = tuple[float, float]


def page(result: Result, raw: Raw, title: str) -> str:
    plots = [over_time(raw), cumulative(raw)]
    body = f"<pre>{escape(markdown(result, title))}</pre>" + "".join(plots)
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"


def over_time(raw: Raw) -> str:
    """TTFT of each request against when it was meant to be sent; warm-up grey, failures red."""
    every = (*raw.warmup, *raw.measured)
    if not every:
        return ""
    start = min(r["intended_ns"] for r in every)

    def points(records: Sequence[dict[str, Any]]) -> list[Point]:
        found = []
        for r in records:
            value = ttft_ms(r)
            if value is not None:
                found.append((float(r["intended_ns"] - start) / 1e9, value))
        return found

    series = [("#999", points(raw.warmup)), ("#1565c0", points(raw.ok))]
    failed = [r for r in raw.measured if r["failure"]]
    at = [((r["intended_ns"] - start) / 1e9, 0.0) for r in failed]
    return scatter("TTFT ms over time s (grey: warm-up, red: failed)", [*series, ("#c62828", at)])


def cumulative(raw: Raw) -> str:
    values = sorted(v for v in map(ttft_ms, raw.ok) if v is not None)
    if len(values) < 2:
        return ""
    points = [(v, 100 * (i + 1) / len(values)) for i, v in enumerate(values)]
    return lines("share of requests % with a TTFT up to ms", [("#1565c0", thin(points))])


def thin(points: Sequence[Point], limit: int = 1000) -> list[Point]:
    """At most about `limit` of the points, the last one included."""
    step = max(1, len(points) // limit)
    kept = list(points[::step])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def scatter(title: str, series: Sequence[tuple[str, Sequence[Point]]]) -> str:
    frame = Frame([p for _, points in series for p in points])
    dots = []
    for colour, points in series:
        for x, y in (frame.place(p) for p in points):
            dots.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='2' fill='{colour}'/>")
    return frame.svg(title, "".join(dots))


def lines(title: str, series: Sequence[tuple[str, Sequence[Point]]]) -> str:
    frame = Frame([p for _, points in series for p in points])
    drawn = []
    for colour, points in series:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (frame.place(p) for p in points))
        drawn.append(f"<polyline points='{path}' fill='none' stroke='{colour}'/>")
    return frame.svg(title, "".join(drawn))


class Frame:
    """Axes from zero to the largest value of each direction."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.max_x = max((x for x, _ in points), default=1.0) or 1.0
        self.max_y = max((y for _, y in points), default=1.0) or 1.0

    def place(self, point: Point) -> Point:
        x = MARGIN + point[0] / self.max_x * (WIDTH - 2 * MARGIN)
        return x, HEIGHT - MARGIN - point[1] / self.max_y * (HEIGHT - 2 * MARGIN)

    def svg(self, title: str, inner: str) -> str:
        base, right = HEIGHT - MARGIN, WIDTH - MARGIN
        axes = f"M{MARGIN} {MARGIN}V{base}H{right}"
        marks = [
            f"<text x='{MARGIN}' y='20'>{escape(title)}</text>",
            f"<text x='{MARGIN - 4}' y='{MARGIN + 4}' text-anchor='end'>{self.max_y:.4g}</text>",
            f"<text x='{right}' y='{base + 16}' text-anchor='end'>{self.max_x:.4g}</text>",
            f"<text x='{MARGIN - 4}' y='{base + 4}' text-anchor='end'>0</text>",
        ]
        return (
            f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' font-size='12' role='img'>"
            f"<path d='{axes}' fill='none' stroke='#444'/>{''.join(marks)}{inner}</svg>"
        )
