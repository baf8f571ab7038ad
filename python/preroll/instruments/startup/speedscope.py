"""A profile for speedscope: one lane of the critical chain, each moment with its whole stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from preroll.instruments.startup.base import Function, Profile, Slice
from preroll.instruments.startup.functions import is_machinery, place
from preroll.instruments.startup.profile_file import coarse
from preroll.instruments.startup.text import NAMES, shorten

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
MAX_NAME = 120


def document(profile: Profile) -> dict[str, Any]:
    """The "evented" kind of its file format: frames opened and closed in order, in seconds."""
    frames: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    opened: list[str] = []

    def turn_to(stack: Sequence[str], at_s: float) -> None:
        kept = 0
        while kept < min(len(opened), len(stack)) and opened[kept] == stack[kept]:
            kept += 1
        while len(opened) > kept:
            events.append({"type": "C", "frame": frames[opened.pop()], "at": at_s})
        for name in stack[kept:]:
            opened.append(name)
            frame = frames.setdefault(name, len(frames))
            events.append({"type": "O", "frame": frame, "at": at_s})

    for one in coarse(profile.slices):
        turn_to(_stack(profile, one), (one.start_ns - profile.spawned_ns) / 1e9)
    turn_to((), profile.total_s)
    name = shorten(" ".join(profile.command), MAX_NAME)
    lane = {"type": "evented", "name": "critical path", "unit": "seconds", "startValue": 0}
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": "preroll",
        "shared": {"frames": [{"name": frame} for frame in frames]},
        "profiles": [{**lane, "endValue": profile.total_s, "events": events}],
    }


def _frame(function: Function) -> str:
    return shorten(f"{function.name} ({place(function.file)}:{function.line})", MAX_NAME)


def _stack(profile: Profile, one: Slice) -> list[str]:
    """Process, label, import, functions (outermost first), cause (with its file)."""
    at_s = (one.start_ns - profile.spawned_ns) / 1e9
    label = next((x.name for x in profile.labels if x.start_s <= at_s < x.end_s), "")
    command = next((p.command for p in profile.processes if p.pid == one.pid), "")
    stack = [shorten(f"{one.pid} {command}", MAX_NAME)]
    stack += [label] if label else []
    stack += [f"import {one.module}"] if one.module else []
    stack += [
        _frame(function)
        for function in reversed(one.stack or ())
        if not is_machinery(function.file)
    ]
    where = f": {one.file}" if one.file and one.cause.value in ("read", "fault_io", "disk") else ""
    return [*stack, f"{NAMES[one.cause]}{where}"]
