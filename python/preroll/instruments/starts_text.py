"""Starts as text: a bar per wait that sums to the total, and the distribution over starts."""

from __future__ import annotations

from collections.abc import Sequence

from preroll.core import Start, Wait
from preroll.errors import RefusedError
from preroll.quantiles import median, median_interval, quantile

BAR_WIDTH = 40
# A silence shorter than this share of a start is not worth a line.
GAP_SHARE = 0.05
TAIL = (0.9, 0.95, 0.99)


def waits(start: Start) -> dict[Wait, int]:
    """Nanoseconds per wait, in the order of a start; they sum to the total."""
    totals = dict.fromkeys(Wait, 0)
    for phase in start.phases:
        totals[phase.wait] += phase.end_ns - phase.start_ns
    return totals


def bars(start: Start, width: int = BAR_WIDTH) -> list[str]:
    """One line per wait that took time; bar lengths sum to `width`, seconds to the total."""
    totals = {wait: ns for wait, ns in waits(start).items() if ns}
    whole = sum(totals.values())
    shown_ms = apportion(list(totals.values()), round(start.total_s * 1000))
    lengths = apportion(list(totals.values()), width)
    lines, before = [], 0
    for (wait, ns), ms, length in zip(totals.items(), shown_ms, lengths, strict=True):
        bar = f"{' ' * before}{'█' * length}".ljust(width)
        lines.append(f"  {wait:<8}{bar} {ms / 1000:9.3f} s {ns / whole:6.1%}")
        before += length
    lines.append(f"  {'total':<8}{' ' * width} {round(start.total_s * 1000) / 1000:9.3f} s")
    return lines


def apportion(parts: Sequence[int], total: int) -> list[int]:
    """Whole numbers in the proportion of `parts` that sum to `total` (largest remainders)."""
    whole = sum(parts)
    if not whole:
        return [0] * len(parts)
    exact = [part * total for part in parts]
    floors = [value // whole for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: exact[i] % whole, reverse=True)
    for i in by_remainder[: total - sum(floors)]:
        floors[i] += 1
    return floors


def phases(start: Start) -> list[str]:
    """Every phase with the engine's own words for it."""
    return [
        f"  {(p.start_ns - start.spawned_ns) / 1e9:9.3f} s  {p.duration_s:9.3f} s  "
        f"{p.wait:<8}{p.label}"
        for p in start.phases
    ]


def gap(start: Start) -> str | None:
    """The longest silence in words, when it is a share of the start worth telling."""
    if start.gap is None or start.gap.duration_s < GAP_SHARE * start.total_s:
        return None
    return f"{start.gap.duration_s:.1f} s after '{start.gap.after}' with no output"


def one_start(start: Start, *, with_phases: bool = False) -> list[str]:
    lines = [f"{start.stage} {start.replica}: {start.total_s:.3f} s from spawn to ready"]
    lines += bars(start)
    silence = gap(start)
    if silence:
        lines.append(f"  longest silence: {silence}")
    return lines + (["", *phases(start)] if with_phases else [])


def distribution(totals_s: Sequence[float]) -> list[str]:
    """Median, extremes, spread and the quantiles that so many starts support."""
    if not totals_s:
        return ["no starts"]
    low, high, middle = min(totals_s), max(totals_s), median(totals_s)
    lines = [f"starts  {len(totals_s)}", f"median  {middle:.3f} s{_interval(totals_s)}"]
    lines.append(f"min     {low:.3f} s")
    lines.append(f"max     {high:.3f} s")
    spread = f" ({(high - low) / middle:.0%} of the median)" if middle else ""
    lines.append(f"spread  {high - low:.3f} s{spread}")
    for q in TAIL:
        try:
            lines.append(f"p{q * 100:g}     {quantile(totals_s, q):.3f} s")
        except RefusedError as error:
            lines.append(f"p{q * 100:g}     refused: {str(error).partition(': ')[2]} starts")
            break
    return lines


def _interval(totals_s: Sequence[float]) -> str:
    interval = median_interval(totals_s)
    return f"   95 % interval {interval[0]:.3f} to {interval[1]:.3f} s" if interval else ""


def waits_over(starts: Sequence[Start]) -> list[str]:
    """The median seconds of each wait over the starts (medians need not sum to a median)."""
    columns = [waits(start) for start in starts]
    lines = [f"  {'wait':<8}{'median':>11}{'min':>11}{'max':>11}"]
    for wait in Wait:
        seconds = [column[wait] / 1e9 for column in columns]
        if any(seconds):
            cells = (median(seconds), min(seconds), max(seconds))
            lines.append(f"  {wait:<8}" + "".join(f"{s:9.3f} s" for s in cells))
    return lines
