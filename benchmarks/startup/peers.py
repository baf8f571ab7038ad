"""Other tools on the same worker: how much they slow it, how much of the start they name."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from surroundings import WORKER, Place, around

ROOT = Path(__file__).resolve().parents[2]
PY_SPY = ROOT / ".cache" / "py-spy" / "bin" / "py-spy"
IMPORT_TIME = re.compile(r"import time:\s+(\d+) \|")
STRACE_TIME = re.compile(r"^(\d+) .*<(\d+\.\d+)>$")
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Peer:
    """`named` reads what the tool wrote: seconds of the start that have a name."""

    name: str
    words: Sequence[str]
    named: Callable[[Path, str], float]


def of_importtime(_: Path, said: str) -> float:
    return sum(int(us) for us in IMPORT_TIME.findall(said)) / 1e6


def of_py_spy(out: Path, _: str) -> float:
    """Samples at 100 Hz; each is 10 ms of one thread that was not idle."""
    return sum(int(line.rsplit(" ", 1)[1]) for line in out.read_text().splitlines()) / 100


def of_strace(out: Path, _: str) -> float:
    """Seconds within system calls of the first process."""
    found = [STRACE_TIME.match(line) for line in out.read_text(errors="replace").splitlines()]
    rows = [(match[1], float(match[2])) for match in found if match]
    return sum(seconds for pid, seconds in rows if pid == rows[0][0])


def peers(out: Path) -> list[Peer]:
    python = [sys.executable]
    found = [Peer("bare", python, lambda *_: 0.0)]
    found.append(Peer("importtime", [*python, "-X", "importtime"], of_importtime))
    if PY_SPY.exists():
        words = [str(PY_SPY), "record", "-r", "100", "-f", "raw", "-o", str(out), "--", *python]
        found.append(Peer("py_spy", words, of_py_spy))
    if shutil.which("strace"):
        found.append(Peer("strace", ["strace", "-f", "-T", "-o", str(out), *python], of_strace))
    return found


def beside(place: Place, rounds: int) -> Figures:
    """Seconds from spawn to ready under each tool, and the share of it that the tool names."""
    out = place.folder / "peer.out"
    times: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for _ in range(rounds):
        for peer in peers(out):
            with around(place, "peer") as found:
                took, said = ready_s([*peer.words, str(WORKER)], found.env, place.folder)
            times.setdefault(peer.name, []).append(took)
            shares.setdefault(peer.name, []).append(peer.named(out, said) / took)
    figures: Figures = {}
    for name, found_s in times.items():
        figures[f"peer_{name}_ready_s"] = statistics.median(found_s)
        figures[f"peer_{name}_named"] = statistics.median(shares[name])
    return figures


def ready_s(words: Sequence[str], env: dict[str, str], folder: Path) -> tuple[float, str]:
    """Runs to the end; how long until the line "ready", and all that went to stderr."""
    whole = {**os.environ, **env, "PLANTED_END": "1"}
    begun = time.monotonic()
    with (folder / "peer.err").open("w+") as errors:
        process = subprocess.Popen(
            words, env=whole, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout is not None
        took = 0.0
        for line in process.stdout:
            if line == "ready\n":
                took = time.monotonic() - begun
        if process.wait() != 0 or not took:
            raise RuntimeError(f"{' '.join(words)}: did not get ready")
        errors.seek(0)
        return took, errors.read()
