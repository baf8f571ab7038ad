"""The report of an experiment for a terminal, and its one line per run."""

from __future__ import annotations

from collections.abc import Sequence

from preroll.instruments.ablation.moved import Moved
from preroll.instruments.ablation.raw import Run
from preroll.instruments.ablation.report import Report
from preroll.instruments.ablation.state import mib
from preroll.instruments.ablation.verdict import Effect, Outcome, Verdict
from preroll.quantiles import median

MOST_ROWS = 8
NAME_WIDTH = 44
REASONS_SHOWN = 3


def run_line(run: Run) -> str:
    where = f"pair {run.pair}" if run.pair else "rehearsal"
    if run.total_s is None:
        cause = (run.failure or "").splitlines()[-1].strip()
        return f"{where:<10} {run.arm:<8} failed: {cause}"
    read = f"{mib(run.read_bytes)} read, {run.major_faults} major faults"
    line = f"{where:<10} {run.arm:<8} {run.total_s:9.3f} s   {read}"
    return f"{line}   discarded: {run.discarded}" if run.discarded else line


def report_lines(report: Report) -> list[str]:
    lines = [f"{report.outcome}   {report.change}   ({report.cache} cache)"]
    if report.needed is not None:
        lines.append(
            "  so changed, the command does not get ready (a stub cannot stand for everything):"
        )
        lines += [f"  {line}" for line in report.needed.splitlines()]
    if report.verdict is not None:
        lines += ["", *_effects(report.verdict), *_says(report, report.verdict)]
    lines += _moved(report.moved)
    lines += ["", *_states(report)] if report.verdict else []
    return lines + [f"note: {note}" for note in report.notes]


def _effects(verdict: Verdict) -> list[str]:
    head = f"  {'':<{NAME_WIDTH}}{'control':>10}{'variant':>10}{'saving':>10}   95 % interval"
    return [head, *(_effect(e) for e in (verdict.total, *verdict.segments))]


def _effect(effect: Effect) -> str:
    times = f"{effect.control_s:8.3f} s{effect.variant_s:8.3f} s{effect.saving_s:+8.3f} s"
    bounds = "   none with so few pairs"
    if effect.low_s is not None and effect.high_s is not None:
        bounds = f"   [{effect.low_s:+.3f}, {effect.high_s:+.3f}]"
    return f"  {_cut(effect.name)}{times}{bounds}   p {effect.p:.4f}   {effect.outcome}"


def _says(report: Report, verdict: Verdict) -> list[str]:
    total, lines = verdict.total, []
    if total.outcome is Outcome.NO_CHANGE and report.question.margin is not None:
        lines.append(f"  shown to be less than {report.question.margin:.0%} of the control")
    if not verdict.is_decided:
        needed = verdict.pairs_needed
        if needed is None:
            more = "too few pairs to say how many would decide"
        else:
            more = f"about {needed} pairs would decide, if effect and spread are as seen so far"
        lines.append(f"  {total.pairs} pairs do not decide; {more}")
    if report.prediction is not None:
        lines.append(_predicted(report, total))
    return lines


def _predicted(report: Report, total: Effect) -> str:
    prediction = report.prediction
    assert prediction is not None
    error = prediction.error(total)
    off = "" if error is None else f" ({error:+.0%})"
    word = "right" if prediction.is_right(total) else "wrong"
    return (
        f"  predicted {prediction.exclusive_s:.3f} s of {prediction.inclusive_s:.3f} s inclusive: "
        f"{word}{off}"
    )


def _moved(moved: Sequence[Moved]) -> list[str]:
    if not moved:
        return []
    lines = ["", "moved to (not tested: a lead, no finding)"]
    grown, shrunk = [m for m in moved if m.grew_s > 0], [m for m in moved if m.grew_s < 0]
    for row in (*grown[:MOST_ROWS], *shrunk[-MOST_ROWS:]):
        times = f"{row.control_s:8.3f} s{row.variant_s:8.3f} s{row.grew_s:+8.3f} s"
        lines.append(f"  {_cut(f'{row.kind} {row.name}')}{times}")
    return lines


def _states(report: Report) -> list[str]:
    lines = []
    for arm, read in report.read_bytes.items():
        faults = report.major_faults[arm]
        lines.append(
            f"{arm}: read from a device {mib(min(read))} to {mib(max(read))} a run, "
            f"major faults {min(faults)} to {max(faults)}, median {median(faults):g}"
        )
    if report.num_discarded:
        reasons = "; ".join(report.discarded[:REASONS_SHOWN])
        lines.append(f"discarded and repeated: {report.num_discarded} runs ({reasons})")
    return lines


def _cut(name: str) -> str:
    return f"{name[: NAME_WIDTH - 2]:<{NAME_WIDTH}}"
