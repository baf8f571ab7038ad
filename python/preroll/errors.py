"""The exceptions of Preroll: one base, and one class per thing that a caller can do about it."""

from __future__ import annotations


class PrerollError(Exception):
    """Base of all errors raised on purpose.

    The message says what, the value, what is allowed, and the next step.
    """

    exit_code = 1
    is_report = False
    """Whether the message is a list for the terminal, with its own places (file:line)."""


class InputError(PrerollError):
    """The caller's input is wrong: mend it and call again. Command line exit status 2."""

    exit_code = 2


class RefusedError(PrerollError):
    """A number that cannot be trusted was refused; the message names the reason and the remedy."""

    exit_code = 3


class UnavailableError(PrerollError):
    """Something outside did not answer: a process, a socket, a disk. Trying again may help."""

    exit_code = 4
