"""Timelines and the comparison as one self-contained page: own SVG, no script, no request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from preroll.planning.simulation_report import LEGEND, Labelled, rows

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 860, 150, 56, 22, 8
MAX_ENDPOINTS = 6
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 940px; padding: 0 1rem;
  color: #1b1f24; background: #fff }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
td, th { padding: .25rem .6rem; white-space: nowrap; text-align: right;
  border-bottom: 1px solid #d8dde3 }
td:first-child, th:first-child { text-align: left } svg { display: block; max-width: 100% }
.axis { stroke: #8a939d; stroke-width: 1 } text { font-size: 12px; fill: #57606a }
h3 { margin: 1.2rem 0 .2rem; font-size: 1rem } .key { color: #57606a; font-size: 13px }
@media (prefers-color-scheme: dark) { body { color: #e6e9ec; background: #14171a }
  td, th { border-color: #343a40 } text, .key { fill: #9aa4ae; color: #9aa4ae } }
"""
LINES = (
    ("queued", "#c2410c", lambda s: s[1]),
    ("in flight", "#2563eb", lambda s: s[2]),
)
REPLICAS = (
    ("replicas ready", "#15803d", lambda s: s[3]),
    ("ready and starting", "#a16207", lambda s: s[3] + s[4]),
)
Series = Sequence[tuple[str, str, Callable[[Any], float]]]


def page(title: str, outcomes: Labelled) -> str:
    """The page. Of many endpoints those with the most requests are drawn."""
    head, *body = rows(outcomes)
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body
    )
    plots = "".join(_section(label, outcome.endpoints) for label, outcome in outcomes)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style><h1>preroll simulate: {escape(title)}</h1>"
        f'<table><tr>{cells}</tr>{lines}</table><p class="key">{escape(LEGEND)}</p>{plots}</html>\n'
    )


def _section(label: str, endpoints: dict[str, dict[str, Any]]) -> str:
    busiest = sorted(endpoints, key=lambda name: -endpoints[name]["arrivals"])[:MAX_ENDPOINTS]
    parts = [f"<h2>{escape(label)}</h2>"]
    if len(endpoints) > len(busiest):
        parts.append(f'<p class="key">the {len(busiest)} busiest of {len(endpoints)}</p>')
    for name in busiest:
        samples = endpoints[name]["timeline"]
        parts.append(f"<h3>{escape(name)}</h3>")
        parts.append(_plot(samples, LINES) + _plot(samples, REPLICAS))
    return "".join(parts)


def _plot(samples: list[Any], series: Series) -> str:
    if not samples:
        return '<p class="key">nothing was sampled</p>'
    end_s = max(samples[-1][0], 1e-9)
    top = max(1.0, max(value(s) for s in samples for _, _, value in series))
    key = " · ".join(f'<span style="color:{c}">■</span> {escape(n)}' for n, c, _ in series)
    drawn = "".join(
        f'<path d="{_path(samples, value, end_s, top)}" fill="none" stroke="{color}" '
        f'stroke-width="1.5"/>'
        for _, color, value in series
    )
    x1, y1 = WIDTH - 8, HEIGHT - BOTTOM
    return (
        f'<div class="key">{key}</div><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f'<path class="axis" d="M{LEFT} {TOP}V{y1}H{x1}" fill="none"/>'
        f'<text x="{LEFT - 6}" y="{TOP + 8}" text-anchor="end">{top:,.0f}</text>'
        f'<text x="{LEFT - 6}" y="{y1}" text-anchor="end">0</text>'
        f'<text x="{x1}" y="{HEIGHT - 6}" text-anchor="end">{_span(end_s)}</text>{drawn}</svg>'
    )


def _path(samples: list[Any], value: Callable[[Any], float], end_s: float, top: float) -> str:
    """Steps, because counts jump; a point that changes nothing is left out."""
    width, height = WIDTH - LEFT - 8, HEIGHT - BOTTOM - TOP
    parts: list[str] = []
    last: float | None = None
    for sample in samples:
        now = value(sample)
        x = LEFT + width * sample[0] / end_s
        if last is None:
            parts.append(f"M{x:.1f} {TOP + height * (1 - now / top):.1f}")
        elif now != last:
            parts.append(f"H{x:.1f}V{TOP + height * (1 - now / top):.1f}")
        last = now
    return "".join([*parts, f"H{WIDTH - 8}"])


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
