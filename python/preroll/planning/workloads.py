"""What arrives: a trace file, a built-in trace or a generator, from one line of text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from preroll.errors import InputError
from preroll.planning import servegen
from preroll.planning.traces import Buffers, Trace, read_trace

BUILT_IN = {
    "azure-code": "azure_llm_2023_code.csv.xz",
    "azure-conv": "azure_llm_2023_conv.csv.xz",
    "mooncake": "mooncake_conversation.jsonl.xz",
}
GENERATORS = ("poisson", "gamma", "deterministic", "spike", "servegen")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9.eE+-]+)(ns|us|ms|s|m|h|d)?")


@dataclass(slots=True)
class Workload:
    """Named arrival processes (as crates/sim takes them) and the traces that they name by index.

    `end_s` is the end of the arrivals; `wall_s` is the wall time of time zero.
    """

    name: str
    arrivals: dict[str, dict[str, Any]]
    traces: list[Buffers] = field(default_factory=list)
    end_s: float = 0.0


def duration_s(text: str, name: str) -> float:
    """Seconds of "300ms", "5m", "1.5h", "14d" or plain seconds. InputError names the field."""
    match = _DURATION.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return float(match[1]) * UNITS[match[2] or "s"]
    except ValueError as error:
        raise InputError(
            f"{name} is '{text}'; durations are written as 300ms, 5m, 1h, 14d"
        ) from error


class Options:
    """`key=value` pairs of a specification; every one must be used."""

    def __init__(self, text: str, kind: str) -> None:
        self.kind = kind
        self.given: dict[str, str] = {}
        self.known: list[str] = []
        for part in filter(None, text.split(",")):
            key, equals, value = part.partition("=")
            if not equals:
                raise InputError(f"{kind}: '{part}' is not key=value")
            self.given[key] = value

    def text(self, key: str, default: str | None) -> str:
        self.known.append(key)
        value = self.given.get(key, default)
        if value is None:
            raise InputError(f"{self.kind} needs {key}=, such as {EXAMPLES[self.kind]}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        text = self.text(key, None if default is None else str(default))
        try:
            return float(text)
        except ValueError as error:
            raise InputError(f"{self.kind}: {key} is '{text}', not a number") from error

    def seconds(self, key: str, default: str | None = None) -> float:
        return duration_s(self.text(key, default), f"{self.kind}: {key}")

    def finish(self) -> None:
        unknown = [key for key in self.given if key not in self.known]
        if unknown:
            raise InputError(
                f"{self.kind} has no option '{unknown[0]}'; it has {', '.join(self.known)}"
            )


EXAMPLES = {
    "poisson": "poisson:rate=2,for=1h",
    "gamma": "gamma:rate=2,cv=3,for=1h",
    "deterministic": "deterministic:rate=2,for=1h",
    "spike": "spike:base=2,peak=6,at=1m,for=30m",
    "servegen": "servegen:quiet or servegen:m-large/10,for=7d",
}


def workload(text: str, speed: float = 1.0) -> Workload:
    """The workload that a `--trace` argument names: FILE, a built-in name, or NAME:OPTIONS.

    `speed` divides the gaps of recorded traces. Raises InputError.
    """
    name, _, rest = text.partition(":")
    if name in GENERATORS:
        return _generated(name, rest, text)
    if text in BUILT_IN:
        resource = files("preroll.planning").joinpath("data/traces", BUILT_IN[text])
        with as_file(resource) as path:
            return _recorded(text, read_trace(path), speed)
    path = Path(text)
    if not path.exists():
        known = ", ".join([*BUILT_IN, *(EXAMPLES[g] for g in GENERATORS)])
        raise InputError(f"trace '{text}' is neither a file nor one of: {known}")
    return _recorded(path.stem, read_trace(path), speed)


def _recorded(name: str, trace: Trace, speed: float) -> Workload:
    if speed <= 0:
        raise InputError(f"speed is {speed}; it must be above 0 (2 halves all gaps)")
    trace = trace.faster(speed) if speed != 1.0 else trace
    return Workload(name, {name: {"kind": "trace", "trace": 0}}, [trace.buffers()], trace.end_s)


def _tokens(options: Options, key: str, default: float) -> dict[str, Any]:
    mean, cv = options.number(key, default), options.number(f"{key}_cv", 0.0)
    if cv == 0:
        return {"kind": "constant", "value": mean}
    return {"kind": "lognormal", "mean": mean, "cv": cv}


def _generated(kind: str, rest: str, text: str) -> Workload:
    if kind == "servegen":
        return _servegen(rest, text)
    options = Options(rest, kind)
    end_s = options.seconds("for", "1h")
    make: Callable[[Options], tuple[dict[str, Any], list[list[float]]]]
    make = _spike if kind == "spike" else _constant_rate
    gap, rates = make(options)
    arrivals = {
        "kind": "renewal",
        "gap": gap,
        "rates": rates,
        "end_s": end_s,
        "prompt": _tokens(options, "prompt", 512.0),
        "output": _tokens(options, "output", 128.0),
    }
    options.finish()
    return Workload(text, {kind: arrivals}, [], end_s)


def _constant_rate(options: Options) -> tuple[dict[str, Any], list[list[float]]]:
    gap = _gap(options.kind, options)
    return gap, [[0.0, options.number("rate")]]


def _spike(options: Options) -> tuple[dict[str, Any], list[list[float]]]:
    """The rate rises from `base` to `peak` at `at` and, if given, falls back at `until`."""
    gap = _gap(options.text("gaps", "poisson"), options)
    base, peak = options.number("base"), options.number("peak")
    rates = [[0.0, base], [options.seconds("at", "1m"), peak]]
    until_s = options.seconds("until", "0")
    if until_s:
        rates.append([until_s, base])
    return gap, rates


def _gap(kind: str, options: Options) -> dict[str, Any]:
    if kind == "gamma":
        return {"kind": "gamma", "mean": 1.0, "cv": options.number("cv")}
    if kind == "deterministic":
        return {"kind": "constant", "value": 1.0}
    if kind == "poisson":
        return {"kind": "exponential", "mean": 1.0}
    raise InputError(f"{options.kind}: gaps are '{kind}'; use poisson, gamma or deterministic")


def _servegen(rest: str, text: str) -> Workload:
    what, _, more = rest.partition(",")
    options = Options(more, "servegen")
    chosen = servegen.selected(what or "quiet")
    longest = max(servegen.span_s(category) for category, _ in chosen)
    end_s = min(options.seconds("for", f"{longest}s"), longest)
    prompt, output = _tokens(options, "prompt", 512.0), _tokens(options, "output", 128.0)
    options.finish()
    arrivals = {}
    for (category, number), windows in chosen.items():
        kept = [w for w in windows if w["start_s"] + servegen.WINDOW_S <= end_s]
        if kept:
            arrivals[f"{category}/{number}"] = {
                "kind": "windows",
                "windows": kept,
                "window_s": servegen.WINDOW_S,
                "prompt": prompt,
                "output": output,
            }
    if not arrivals:
        raise InputError(f"{text}: no request in the first {end_s:.0f} s; give a longer for=")
    return Workload(text, arrivals, [], end_s)
