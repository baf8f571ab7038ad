"""`--sweep key=v1,v2`: every combination of the given values of the given options."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from preroll.errors import InputError
from preroll.planning.scenario import Inputs


def sweep(specifications: tuple[str, ...]) -> list[dict[str, Any]]:
    """All combinations, as changes to `Inputs`; one empty change when nothing is swept."""
    axes = [_axis(text) for text in specifications]
    return [dict(combination) for combination in itertools.product(*axes)]


def _axis(text: str) -> list[tuple[str, Any]]:
    key, equals, values = text.partition("=")
    key = key.strip().replace("-", "_")
    fields = {f.name: f for f in dataclasses.fields(Inputs)}
    if not equals or not values:
        raise InputError(f"sweep '{text}' is not KEY=VALUE,VALUE, such as max=1,2,4")
    if key not in fields:
        raise InputError(f"sweep: there is no option '{key}'; there are {', '.join(fields)}")
    if key == "batch":
        raise InputError("sweep: batch holds commas itself; run it once per value")
    return [(key, _value(key, str(fields[key].type), part)) for part in values.split(",")]


def _value(key: str, kind: str, text: str) -> Any:
    try:
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            return float(text)
        if kind == "bool":
            return {"true": True, "false": False}[text]
    except (ValueError, KeyError) as error:
        raise InputError(f"sweep: {key} is '{text}', not {kind.split()[0]}") from error
    return text
