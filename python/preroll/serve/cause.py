"""Why a process ended, in words, with the engine's real cause as the last line."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from preroll.backends.base import ProcessStatus
from preroll.engines.cause import real_cause

MAX_LINES = 12
MAX_CHARACTERS = 300
"""Of the line that clients are told."""


def how_it_ended(status: ProcessStatus) -> str:
    """For instance `exited with code 1 after 0.3 s` or `killed by SIGKILL (out of memory) …`."""
    ended = status.exit
    if status.error and ended is None:
        how = status.error
    elif ended is not None and ended.code is not None:
        how = f"exited with code {ended.code}"
    elif ended is not None and ended.signal is not None:
        names = {s.value: s.name for s in signal.Signals}
        how = f"killed by {names.get(ended.signal, f'signal {ended.signal}')}"
        if status.oom_kills:
            how += " (out of memory: raise `memory`)"
    else:
        how = "ended"
    if status.spawned_ns and status.exited_ns:
        how += f" after {(status.exited_ns - status.spawned_ns) / 1e9:.1f} s"
    if status.error and ended is not None:
        how += f"; {status.error}"
        if ended.code == 0:
            how += " (an engine must stay in the foreground)"
    return how


def explain(how: str, lines: Sequence[str]) -> str:
    """`how`, the last lines of output, and last of all the line that most likely is the cause."""
    said = [line.rstrip() for line in lines if line.strip()]
    if not said:
        return f"{how}; it printed nothing"
    cause = real_cause(said)
    others = [line for line in said if cause not in line][-MAX_LINES:]
    return "\n".join([f"{how}; its last lines:", *(f"  {line}" for line in [*others, cause])])


def last_line(explanation: str) -> str:
    """The line of `explain` that is the cause, short and printable: it goes to strangers."""
    lines = [line.strip() for line in explanation.splitlines() if line.strip()]
    last = "".join(c if c.isprintable() else " " for c in lines[-1]) if lines else ""
    return last if len(last) <= MAX_CHARACTERS else last[: MAX_CHARACTERS - 1] + "…"
