"""`preroll profile`: a start as a partition by cause, with imports, labels and levers.

`await record(Options(command, ready=…))`, or `run(command, ready, …)` where no loop runs, gives a
`Profile`. Both raise InputError for what cannot be run; a command that crashes or never becomes
ready still gives its partial profile (see `Outcome`).
"""

from __future__ import annotations

from preroll.instruments.startup.base import Cause, ImportCost, Outcome, Profile, Segment
from preroll.instruments.startup.launch import Options, record, run

__all__ = ["Cause", "ImportCost", "Options", "Outcome", "Profile", "Segment", "record", "run"]
