"""Counters and histograms of one replica, in Prometheus' text format.

The worker runs in environments where nothing but uvicorn is installed, hence these few lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RATIOS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0)


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def lines(self, name: str, labels: str) -> list[str]:
        return [f"{name}{_braced(labels)} {self.value}"]


class Histogram:
    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> list[str]:
        found, running = [], 0
        before = f"{labels}," if labels else ""
        for bound, count in zip([*map(repr, self._bounds), "+Inf"], self._counts, strict=True):
            running += count
            found.append(f'{name}_bucket{{{before}le="{bound}"}} {running}')
        found.append(f"{name}_sum{_braced(labels)} {self.total}")
        found.append(f"{name}_count{_braced(labels)} {running}")
        return found


class Metrics:
    """All series of one replica. A family is made when it is first asked for."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], Counter] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._gauges: dict[tuple[str, str], Callable[[], float]] = {}

    def counter(self, name: str, **labels: str) -> Counter:
        key = (name, _labels(labels))
        if key not in self._counters:
            self._counters[key] = Counter()
        return self._counters[key]

    def histogram(self, name: str, bounds: tuple[float, ...], **labels: str) -> Histogram:
        key = (name, _labels(labels))
        if key not in self._histograms:
            self._histograms[key] = Histogram(bounds)
        return self._histograms[key]

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """`read` is called when the metrics are."""
        self._gauges[name, _labels(labels)] = read

    def text(self) -> str:
        lines: list[str] = []
        for kind, series in (("counter", self._counters), ("histogram", self._histograms)):
            typed = ""
            for (name, labels), one in sorted(series.items(), key=lambda pair: pair[0]):
                if name != typed:
                    lines.append(f"# TYPE {name} {kind}")
                    typed = name
                lines += one.lines(name, labels)  # type: ignore[attr-defined]
        typed = ""
        for (name, labels), read in sorted(self._gauges.items(), key=lambda pair: pair[0]):
            if name != typed:
                lines.append(f"# TYPE {name} gauge")
                typed = name
            lines.append(f"{name}{_braced(labels)} {read()}")
        return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""
