"""What a worker prints: one line for each thing that happened, with the request's id."""

from __future__ import annotations

import os
import sys
import traceback

from preroll.errors import PrerollError
from preroll.worker.answer import WrongTypeError
from preroll.worker.context import Context

PREFIX = "preroll.worker: "


def say(line: str) -> None:
    """One whole line on stderr, by one write: threads and children must not tear it."""
    sys.stderr.flush()
    os.write(2, f"{PREFIX}{line}\n".encode(errors="replace"))


def phase(name: str) -> None:
    """`preroll.worker: phase NAME` on stdout: where the start's time goes from here on."""
    sys.stdout.flush()
    os.write(1, f"{PREFIX}phase {name}\n".encode())


def failure(error: BaseException, status: int, context: Context) -> str:
    """Reports a failed request; returns what its client is told.

    An error raised on purpose speaks for itself. Of any other the client learns the type only:
    messages of libraries may hold paths and secrets.
    """
    if isinstance(error, PrerollError) and status != 500:
        return str(error)
    request = context.request_id or "without an id"
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    say(f"request {request} to {context.path} failed\n{trace.rstrip()}")
    if isinstance(error, (PrerollError, WrongTypeError)):
        return str(error)
    return f"the stage raised {type(error).__name__}; its log has the cause under request {request}"


def fatal(error: BaseException) -> None:
    """Where a StageFatal was raised, and its message as the last line: what a supervisor shows."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    say(f"the replica ends\n{trace.rstrip()}")
