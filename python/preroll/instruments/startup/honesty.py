"""Where a label's name and what really happened under it disagree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from preroll.instruments.startup.base import Cause

# From this share on, something that the label does not say is what it is about.
MUCH = 0.4
# Loading a warm file is copying, which is computing: more must speak for a wrong label.
MOSTLY = 0.7
# Waiting for a processor contradicts a label only where it is so much more than in the whole start:
# on a full machine it says nothing of the label.
MORE_CROWDED = 0.2
MIN_SECONDS = 0.05
MIN_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Facts:
    """What a stretch was spent on; seconds. `import_s` is the part of it within module loads."""

    total_s: float
    causes: Mapping[str, float]
    import_s: float = 0.0
    top_package: str = ""
    cold_bytes: int = 0


ASLEEP = (Cause.SLEEP,)
LOCKED = (Cause.LOCK, Cause.PIPE)
CONNECTED = (Cause.NETWORK,)
CROWDED = (Cause.RUN_QUEUE, Cause.STOLEN)
READING = (Cause.READ, Cause.FAULT_IO, Cause.DISK)
COMPUTING = (Cause.CPU,)

WORDS = {
    ASLEEP: "asleep",
    LOCKED: "waiting for a lock or another process that was not working",
    CONNECTED: "waiting for the network",
    CROWDED: "waiting for a processor",
    READING: "reading files",
    COMPUTING: "computing",
}

# What a label may say, and what then contradicts it; the first that matches counts.
CLAIMS: tuple[tuple[re.Pattern[str], tuple[tuple[Cause, ...], ...], bool], ...] = (
    (re.compile(r"\b(wait|sleep|retry|back.?off|idle)\w*", re.I), (COMPUTING, READING), False),
    (
        re.compile(
            r"\b(\w*compil|jit|captur|autotun|inductor|codegen|optimi[sz]|trac(e|ing)|quantiz|warm)\w*",
            re.I,
        ),
        (ASLEEP, LOCKED, CONNECTED, READING),
        True,
    ),
    (
        re.compile(r"\b(download|fetch|pull|clon)\w*", re.I),
        (ASLEEP, LOCKED, COMPUTING),
        True,
    ),
    (re.compile(r"\bimport\w*", re.I), (ASLEEP, LOCKED, CONNECTED), False),
    (
        re.compile(r"\b(\w*load|read|weight|checkpoint|shard|deseriali)\w*", re.I),
        (ASLEEP, LOCKED, CONNECTED, COMPUTING),
        True,
    ),
    (re.compile(r"\b(connect|listen|regist|request)\w*", re.I), (ASLEEP, COMPUTING), False),
)
ANYTHING = (ASLEEP,)


def lie(name: str, facts: Facts, whole_s: float, usual_crowd: float = 0.0) -> str | None:
    """What contradicts the name of a stretch, in words; None when nothing does.

    `usual_crowd`: the share of the whole start that went to waiting for a processor.
    """
    if facts.total_s < max(MIN_SECONDS, MIN_SHARE * whole_s):
        return None
    word, against, imports_contradict = _claim(name)
    found = _crowd(facts, usual_crowd) or _contradiction(facts, against, imports_contradict)
    if found is None:
        return None
    return f"says '{word}': {found}" if word else f"{found}, which the line does not say"


def _claim(name: str) -> tuple[str, tuple[tuple[Cause, ...], ...], bool]:
    """The word of `name` that claims something ("" for none), and what would contradict it."""
    for pattern, against, imports_contradict in CLAIMS:
        if found := pattern.search(name):
            return found[0].lower(), against, imports_contradict
    return "", ANYTHING, False


def _crowd(facts: Facts, usual_crowd: float) -> str | None:
    share = _seconds(facts, CROWDED) / facts.total_s
    if share < max(MUCH, usual_crowd + MORE_CROWDED):
        return None
    return f"{share:.0%} {WORDS[CROWDED]}"


def _seconds(facts: Facts, causes: tuple[Cause, ...]) -> float:
    return sum(facts.causes.get(cause, 0.0) for cause in causes)


def _contradiction(
    facts: Facts, against: tuple[tuple[Cause, ...], ...], imports_contradict: bool
) -> str | None:
    """What else than waiting for a processor took the time in which there was one."""
    own_s = facts.total_s - _seconds(facts, CROWDED)
    if imports_contradict and facts.import_s >= MUCH * facts.total_s:
        share = facts.import_s / facts.total_s
        return f"{share:.0%} importing {facts.top_package}"
    worst = max(against, key=lambda causes: _seconds(facts, causes))
    if own_s <= 0 or _seconds(facts, worst) < (MOSTLY if worst == COMPUTING else MUCH) * own_s:
        return None
    more = ", nothing came from storage" if worst == COMPUTING and not facts.cold_bytes else ""
    return f"{_seconds(facts, worst) / facts.total_s:.0%} {WORDS[worst]}{more}"
