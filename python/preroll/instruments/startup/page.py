"""A profile as one self-contained page: no script, no font, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator

from preroll.instruments.startup import picture
from preroll.instruments.startup.base import Cause, Outcome, Profile
from preroll.instruments.startup.functions import is_machinery, place
from preroll.instruments.startup.picture import escape
from preroll.instruments.startup.text import (
    MODES,
    NAMES,
    detail,
    mix,
    moved,
    rows,
    shorten,
    size,
)

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667; --line: #d8dce2; --paper: #fff;
 --alarm: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa; --line: #39414b;
 --paper: #14181d; --alarm: #ff8a80; } }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: var(--paper);
 color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.05rem; font-weight: 600; font-family: ui-monospace, monospace;
 overflow-wrap: anywhere; margin: 0; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
.total { font-size: 2rem; font-weight: 600; margin: .3rem 0 0; }
.soft, .ticks text { color: var(--soft); fill: var(--soft); }
.alarm { color: var(--alarm); }
svg { width: 100%; height: auto; display: block; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg .mark { stroke: var(--soft); stroke-dasharray: 2 3; }
svg .path { fill: none; stroke: var(--ink); stroke-width: 1.5; }
svg .rule { stroke: var(--line); }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 500; color: var(--soft); }
td, th { padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .4rem;
 vertical-align: -1px; }
code { font-size: .85em; overflow-wrap: anywhere; }
li { margin-bottom: .6rem; }
"""
MAX_ROWS = 20
# A function that only calls others is listed when they took this share of the processor time.
MIN_CALLER_SHARE = 0.1


def html(profile: Profile) -> str:
    """The whole page."""
    title = escape(shorten(" ".join(profile.command), 80))
    body = "\n".join(part for section in SECTIONS for part in section(profile))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _head(profile: Profile) -> Iterator[str]:
    yield f"<h1>{escape(' '.join(profile.command))}</h1>"
    what = "ready" if profile.outcome is Outcome.READY else f"{profile.outcome}: {profile.message}"
    yield f'<p class="total">{profile.total_s:.3f} s</p>'
    facts = f"{what} · {profile.date} · {MODES[profile.mode]}"
    if profile.mode != "off":
        facts += f" · {profile.named_share:.2%} with a named cause"
    yield f'<p class="soft">{escape(facts)}</p>'


def _timeline(profile: Profile) -> Iterator[str]:
    if profile.slices and profile.total_s:
        yield "<h2>Timeline</h2>"
        yield picture.timeline(profile)


def _causes(profile: Profile) -> Iterator[str]:
    yield (
        '<h2>Causes</h2><table><tr><th>cause</th><th class="n">seconds</th>'
        '<th class="n">share</th></tr>'
    )
    for cause, shown_s in rows(profile.causes, profile.total_s):
        share = profile.causes[cause] / (profile.total_s or 1.0)
        key = picture.key(cause)
        yield (
            f'<tr><td>{key}{NAMES[cause]}</td><td class="n">{shown_s:.3f}</td>'
            f'<td class="n">{share:.1%}</td></tr>'
        )
    yield f'<tr><td>total</td><td class="n">{profile.total_s:.3f}</td><td></td></tr></table>'


def _functions(profile: Profile) -> Iterator[str]:
    if not profile.functions:
        return
    least_s = MIN_CALLER_SHARE * profile.causes.get(Cause.CPU, 0.0)
    own = [one for one in profile.functions if one.own_s][:MAX_ROWS]
    callers = sorted(profile.functions, key=lambda one: -one.whole_s)
    callers = [one for one in callers if one.whole_s >= least_s and not is_machinery(one.file)]
    more = [one for one in callers if one not in own][:MAX_ROWS]
    yield (
        '<h2>On CPU, by Python function as sampled</h2><table><tr><th class="n">itself</th>'
        '<th class="n">with what it calls</th><th>function</th><th>source</th></tr>'
    )
    for one in (*own, *more):
        yield (
            f'<tr><td class="n">{one.own_s:.3f} s</td><td class="n">{one.whole_s:.3f} s</td>'
            f"<td><code>{escape(one.name)}</code></td>"
            f"<td><code>{escape(place(one.file))}:{one.line}</code></td></tr>"
        )
    yield "</table>"


def _labels(profile: Profile) -> Iterator[str]:
    yield (
        '<h2>What the output says, and what happened</h2><table><tr><th class="n">from</th>'
        '<th class="n">seconds</th><th>label</th><th>causes</th></tr>'
    )
    for label in profile.labels:
        wait = f'<span class="soft">{escape(label.wait)}</span> ' if label.wait else ""
        causes = escape(detail(profile, label))
        lie = f'<br><span class="alarm">{escape(label.lie)}</span>' if label.lie else ""
        yield (
            f'<tr><td class="n">{label.start_s:.3f}</td><td class="n">{label.seconds:.3f}</td>'
            f"<td>{wait}{escape(label.name)}{lie}</td><td>{causes}</td></tr>"
        )
    yield "</table>"
    gap = profile.gap
    if gap is not None:
        yield (
            f"<p>Longest silence: {gap.seconds:.3f} s after <code>{escape(gap.after)}</code>:"
            f" {escape(mix(gap.causes))}.</p>"
        )


def _imports(profile: Profile) -> Iterator[str]:
    if not profile.imports:
        return
    yield (
        '<h2>Imports</h2><table><tr><th>package</th><th class="n">inclusive</th>'
        '<th class="n">exclusive</th><th>the rest, if it were removed</th>'
        "<th>first asked by</th></tr>"
    )
    for cost in list(profile.imports.values())[:MAX_ROWS]:
        yield (
            f'<tr><td><code>{escape(cost.package)}</code></td><td class="n">'
            f'{cost.inclusive_s:.3f}</td><td class="n">{cost.exclusive_s:.3f}</td>'
            f"<td>{escape(moved(cost))}</td><td>{escape(cost.importer)}</td></tr>"
        )
    yield "</table>"


def _files(profile: Profile) -> Iterator[str]:
    if not profile.files:
        return
    yield (
        '<h2>Files</h2><table><tr><th class="n">waited</th><th class="n">from storage</th>'
        "<th>file</th></tr>"
    )
    for file in profile.files[:MAX_ROWS]:
        yield (
            f'<tr><td class="n">{file.seconds:.3f} s</td><td class="n">{size(file.cold_bytes)}'
            f"</td><td><code>{escape(file.path)}</code></td></tr>"
        )
    yield "</table>"


def _levers(profile: Profile) -> Iterator[str]:
    if not profile.levers:
        return
    yield "<h2>What to try, in the order of cost</h2><ol>"
    for lever in profile.levers:
        saving = f" (up to {lever.saving_s:.2f} s)" if lever.saving_s >= 0.005 else ""
        test = f"<br><code>{escape(lever.ablate)}</code>" if lever.ablate else ""
        yield f"<li>{escape(lever.title)}{saving}<br>because {escape(lever.evidence)}{test}</li>"
    yield "</ol>"


def _notes(profile: Profile) -> Iterator[str]:
    if profile.notes:
        yield "<h2>Notes</h2><ul>"
        yield from (f"<li>{escape(note)}</li>" for note in profile.notes)
        yield "</ul>"


SECTIONS = (
    _head,
    _timeline,
    _causes,
    _functions,
    _labels,
    _imports,
    _files,
    _levers,
    _notes,
)
