"""The real cause of a crash, found in the last lines of a process."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preroll.engines.bill import ANSI, PREFIX

EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Fatal)\b(: .+)?"
)
# A worker's last words: an exception before them was handled.
START = re.compile(r"preroll\.worker: (load|compile|warm)\(\) failed: .+")
FATAL = re.compile(
    r"\b(error|fatal|failed|cannot|can't|couldn't|unable to|not found|no such file"
    r"|out of memory|killed|panicked|segmentation fault|illegal instruction|aborted"
    r"|address already in use|denied)\b",
    re.IGNORECASE,
)
# An access log is no complaint, whatever the status that it shows.
ACCESS = re.compile(r'HTTP/\d(\.\d)?"')
# Sentences that only point elsewhere: the exception of a parent about its child.
POINTER = re.compile(
    r"see (root cause|stack trace|error|the) .*above|root cause above|initialization failed"
    r"|EngineDeadError|died unexpectedly|process(es)? (exited|terminated)|Failed core proc"
    r"|error reading model|exiting due to|please check the input params",
    re.IGNORECASE,
)


def real_cause(lines: Sequence[str]) -> str:
    """The line that says why: a worker's last words, else the last exception that does not merely
    point at another one, else the last line that speaks of a failure, else the last line; "" when
    nothing was printed."""
    plain = [ANSI.sub("", line).strip() for line in lines]
    for line in reversed(plain):
        if START.fullmatch(line):
            return line
    # A group of exceptions draws a margin.
    said = [PREFIX.sub("", line.lstrip("| "), count=1).strip() for line in plain]
    said = [s for s in said if not ACCESS.search(s)]
    exceptions = [s for s in said if EXCEPTION.match(s)]
    telling = [s for s in said if FATAL.search(s) and not s.startswith(("File ", "Traceback"))]
    for candidates in (exceptions, telling):
        for text in reversed(candidates):
            if not POINTER.search(text):
                return text
    return next((s for s in reversed(exceptions or telling or said) if s), "")
