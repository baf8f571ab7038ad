"""A result as text: what was sent, what was found, what is refused and why."""

from __future__ import annotations

from preroll.instruments.load.result import QUANTILES, Metric, Quantity, Result

NAMES = {
    "ttft": "TTFT ms",
    "gap": "gap between reads ms",
    "tpot": "TPOT ms/token (server-reported tokens)",
    "e2e": "end to end ms",
    "audible": "first audible sample ms",
    "still": "playing stood still ms",
    "tail": "last audio to last message ms",
}


def markdown(result: Result, title: str) -> str:
    lines = [f"# {title}", "", result.plan + ".", ""]
    lines += [f"- {line}" for line in facts(result)]
    lines += ["", "| | n | " + " | ".join(QUANTILES) + " |", "|---" * (len(QUANTILES) + 2) + "|"]
    lines += [_row(name, metric) for name, metric in result.metrics.items()]
    refusals = _refusals(result)
    if refusals:
        lines += ["", "Refused:", ""] + [f"- {line}" for line in refusals]
    if result.notes:
        lines += ["", "Notes:", ""] + [f"- {note}" for note in result.notes]
    return "\n".join(lines) + "\n"


def facts(result: Result) -> list[str]:
    failed = ", ".join(f"{count} × {kind}" for kind, count in sorted(result.failures.items()))
    lines = [f"{result.requests} requests measured, {result.ok} succeeded"]
    if failed:
        lines.append(f"failures: {failed}")
    if result.warmup:
        warm = result.warmup_ttft_p50_ms
        seen = "" if warm is None else f" (TTFT p50 {warm:.1f} ms)"
        lines.append(f"{result.warmup} warm-up requests left out{seen}")
    lines.append(f"{result.rate_per_s:.2f} successful requests/s")
    if result.tokens_per_s is not None:
        lines.append(f"{result.tokens_per_s:.1f} tokens/s as reported by the server")
    if result.within_slo is not None:
        lines.append(f"{result.within_slo:.1%} of all requests met the SLO")
    if result.runs:
        lines.append(_runs(result))
    lag, cost = result.client["lag_p99_ms"], result.client.get("cpu_us_per_event")
    spent = "" if cost is None else f", {cost:.1f} µs of CPU per content event"
    lines.append(f"client: lag p99 {lag:.2f} ms{spent}")
    if result.interrupted:
        lines.append("INTERRUPTED: a partial result")
    return lines


def _runs(result: Result) -> str:
    r = result.runs
    share, expected = r["share_of_runs_with_a_slow_call"], r["expected_if_independent"]
    return (
        f"{share:.1%} of {r['runs']:.0f} runs had a call with a TTFT above "
        f"{r['slow_above_ms']:.1f} ms; {expected:.1%} if slow calls were independent"
    )


def _row(name: str, metric: Metric) -> str:
    cells = [_cell(metric.quantiles[q]) for q in QUANTILES]
    return f"| {NAMES[name]} | {metric.count} | " + " | ".join(cells) + " |"


def _cell(quantity: Quantity) -> str:
    if quantity.value is None:
        return "refused"
    return f"{quantity.value:.2f} [{quantity.low:.2f}, {quantity.high:.2f}]"


def _refusals(result: Result) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for name, metric in result.metrics.items():
        for label, quantity in metric.quantiles.items():
            if quantity.refused is not None:
                text = f"{quantity.refused.reason}. Remedy: {quantity.refused.remedy}"
                reasons.setdefault(text, []).append(f"{name} {label}")
    return [f"{', '.join(names)}: {text}" for text, names in reasons.items()]
