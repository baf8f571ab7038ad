"""A cliff as text, as a page with its plot, and as the Measurement that limits are set by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from preroll.core import Fingerprint, Measurement
from preroll.errors import RefusedError
from preroll.instruments.cliff.levels import Threshold
from preroll.instruments.cliff.plot import Beside, plot
from preroll.instruments.cliff.search import MATERIAL, Cliff, OpenRun
from preroll.instruments.load.page import STYLE

KIND = "cliff"


def text(cliff: Cliff, title: str, notes: Sequence[str] = ()) -> str:
    lines = [f"# {title}", "", "| failures | first reached at | 95 % interval |", "|---|---|---|"]
    lines += [_row(t) for t in cliff.thresholds]
    recovery = "unresolved" if cliff.recovery is None else f"{cliff.recovery} in flight"
    alone = f"{cliff.baseline:.1%} of requests fail alone" if cliff.up else "unresolved"
    lines += ["", f"- baseline: {alone}"]
    lines.append(f"- recovery, load going down without a pause: {recovery}")
    if cliff.first_failure is not None:
        lines.append(f"- the literal first failure was seen at {cliff.first_failure} in flight")
    limit = "none: unresolved" if cliff.limit is None else str(cliff.limit)
    lines.append(f"- max_concurrency: {limit} (lower of material and recovery, × {cliff.margin:g})")
    lines += [_open_run(run) for run in cliff.open_runs]
    lines.append(f"- {cliff.requests} requests; {cliff.ended}")
    lines += [f"- {note}" for note in notes]
    return "\n".join(lines) + "\n"


def _open_run(run: OpenRun) -> str:
    what = f"open loop at {run.rate_per_s:.1f} requests/s ({run.utilisation:.0%} of the closed"
    share = f"{run.share:.1%} fail [{run.low:.1%}, {run.high:.1%}] of {run.count}"
    return (
        f"- {what} loop's at the limit): {share}, {run.verdict}; {run.mean_in_flight:.1f} in flight"
    )


def _row(t: Threshold) -> str:
    level = f"unresolved: {t.reason}" if t.level is None else str(t.level)
    low, high = ("?" if bound is None else str(bound) for bound in (t.low, t.high))
    return f"| {t.name} (≥ {t.share:.1%}) | {level} | [{low}, {high}] |"


def page(cliff: Cliff, title: str, beside: Beside, notes: Sequence[str] = ()) -> str:
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>"
    body = plot(cliff, beside) + f"<pre>{escape(text(cliff, title, notes))}</pre>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"


def measurement(cliff: Cliff, stage: str, fingerprint: Fingerprint, now: datetime) -> Measurement:
    """The entry that `max_concurrency = "measured"` reads: requests in flight per replica.

    Raises RefusedError when the cliff is unresolved.
    """
    limit, material = cliff.limit, cliff.threshold(MATERIAL)
    if limit is None:
        raise RefusedError(
            f"cliff of {stage}: unresolved ({cliff.ended}; {material.reason or 'no recovery'}); "
            "no limit is written; give it more requests or time"
        )
    extra = {
        f"{t.name.replace(' ', '_')}_level": float(t.level) for t in cliff.thresholds if t.level
    }
    extra |= {"recovery_level": float(cliff.recovery or 0), "requests": float(cliff.requests)}
    holding = next((run for run in cliff.open_runs if run.verdict == "holds"), None)
    if holding is not None:
        extra |= {"open_rate_per_s": holding.rate_per_s, "target": holding.mean_in_flight}
    return Measurement(
        stage=stage,
        kind=KIND,
        value=float(limit),
        unit="requests",
        low=None if material.low is None else float(material.low),
        high=None if material.high is None else float(material.high),
        samples=tuple(round(seen.share, 6) for seen in cliff.up),
        date=now.astimezone(UTC).isoformat(timespec="seconds"),
        fingerprint=fingerprint,
        extra=extra,
    )
