"""Calls a command's cyclopts application: an int comes back, wrong usage is exit status 2."""

from __future__ import annotations

import sys
from typing import Any

import cyclopts


def call(app: cyclopts.App, arguments: list[str]) -> int:
    """Runs `app`; returns what the command returned as an int (None is 0), 2 for wrong usage."""
    try:
        result: Any = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except cyclopts.CycloptsError as error:
        command = " ".join([app.name[0], *(error.command_chain or ())])
        print(f"{command}: {str(error).rstrip('.')} ({command} --help)", file=sys.stderr)
        return 2
    return result if isinstance(result, int) else 0
