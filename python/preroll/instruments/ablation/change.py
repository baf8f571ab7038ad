"""The one variable of an experiment, and what it makes of the command."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from preroll.errors import InputError

MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
VARIABLE = re.compile(r"[^\W\d]\w*")
HOOK = Path(__file__).with_name("stub_hook.py")


class Kind(StrEnum):
    ENV = "env"
    MODULE = "without-module"
    ARGS = "args"
    CMD = "cmd"


@dataclass(frozen=True, slots=True)
class Change:
    """What the variant has and the control has not."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"--{self.kind} {shlex.quote(self.text)}"


@dataclass(frozen=True, slots=True)
class Applied:
    """The command of one run. `record`: where a stub writes that it was imported."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    record: Path | None = None


def one_change(given: Mapping[Kind, str | None]) -> Change:
    """The one that was given. Raises InputError for none, several, or one that cannot be."""
    found = [Change(kind, text) for kind, text in given.items() if text is not None]
    if len(found) != 1:
        said = " and ".join(f"--{change.kind}" for change in found) or "none"
        allowed = ", ".join(f"--{kind}" for kind in given)
        raise InputError(f"one variable is changed at a time; given: {said}; allowed: {allowed}")
    (change,) = found
    if change.kind is Kind.ENV and not VARIABLE.fullmatch(change.text.partition("=")[0]):
        raise InputError(f"--env {change.text!r}: allowed: NAME=VALUE, or NAME to remove it")
    if change.kind is Kind.MODULE and not MODULE.fullmatch(change.text):
        raise InputError(f"--without-module {change.text!r}: allowed: a dotted name like a.b")
    if change.kind in (Kind.ARGS, Kind.CMD):
        words(change)
    return change


def words(change: Change) -> tuple[str, ...]:
    """The words of --args or --cmd, split as a shell would. Raises InputError."""
    try:
        found = tuple(shlex.split(change.text))
    except ValueError as error:
        raise InputError(f"{change}: {error}") from None
    if not found:
        raise InputError(f"--{change.kind}: empty; give at least one word")
    return found


def control(argv: Sequence[str], env: Mapping[str, str]) -> Applied:
    return Applied(tuple(argv), env)


def variant(change: Change, argv: Sequence[str], env: Mapping[str, str], folder: Path) -> Applied:
    """The command with the change; what a stub needs is written to `folder` (which exists)."""
    if change.kind is Kind.ARGS:
        return Applied((*argv, *words(change)), env)
    if change.kind is Kind.CMD:
        return Applied(words(change), env)
    if change.kind is Kind.ENV:
        name, has_value, value = change.text.partition("=")
        rest = {k: v for k, v in env.items() if k != name}
        return Applied(tuple(argv), {**rest, name: value} if has_value else rest)
    record = folder / "stubbed"
    source = f"{HOOK.read_text()}\n\ninstall({change.text!r}, {str(record)!r})\n"
    (folder / "sitecustomize.py").write_text(source)
    path = os.pathsep.join(filter(None, (str(folder), env.get("PYTHONPATH"))))
    return Applied(tuple(argv), {**env, "PYTHONPATH": path}, record)


def was_stubbed(applied: Applied) -> bool:
    """Whether some Python of the run imported the stub; true where there is none to import."""
    return applied.record is None or applied.record.exists()
