"""What the commands' options have in common."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from preroll.config.units import parse_duration
from preroll.errors import InputError

Flag = Annotated[bool, Parameter(negative=())]


def duration_s(option: str, text: str) -> float:
    """Seconds of a duration such as 10m. Raises InputError that names the option."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(f"{option} '{text}': {error}") from None
