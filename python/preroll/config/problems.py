"""What is wrong with an app file, said in one place: key path, place, value, allowed, fix."""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from preroll.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, and a message that names value, allowed and fix."""

    where: KeyPath
    message: str
    is_about_key: bool = False


class AppFileError(InputError):
    """An app file cannot be used; `problems` has every reason, the message one a line."""

    is_report = True

    def __init__(self, lines: Sequence[str], problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def dotted(where: Iterable[str | int]) -> str:
    """A key path as TOML spells it: `stage.chat.warmup[0].path`."""
    text = ""
    for part in where:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{key}" if text else key
    return text


def shown(value: object, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def unknown_key(where: KeyPath, allowed: Sequence[str]) -> Problem:
    key = str(where[-1])
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return Problem(where, f"unknown key {key!r}; allowed: {', '.join(allowed)}{hint}", True)


def allowed_keys(model: type[BaseModel]) -> list[str]:
    """The keys of a table as the file spells them; names in brackets are set by Preroll."""
    names = [field.alias or name for name, field in model.model_fields.items()]
    return [name for name in names if not name.startswith("(")]


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """The problems behind a pydantic error; where an alternative of a union failed, one each."""
    found: dict[KeyPath, Problem] = {}
    for detail in error.errors(include_url=False, include_context=True):
        where, owner = _in_file(detail["loc"], model)
        problem = _problem(where, owner, detail)
        found.setdefault(problem.where, problem)
    return [p for p in found.values() if not _hides_a_deeper_one(p, found)]


def _hides_a_deeper_one(problem: Problem, found: Iterable[KeyPath]) -> bool:
    """A value of a union fails once per alternative: the deepest complaint is the real one."""
    depth = len(problem.where)
    return not problem.is_about_key and any(
        len(where) > depth and where[:depth] == problem.where for where in found
    )


# What is given here may be the secret itself: it is never repeated.
SECRET_KEYS = ("secret", "key", "api_key", "admin_token", "sha256")


def _problem(where: KeyPath, owner: type[BaseModel] | None, detail: Any) -> Problem:
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden" and owner is not None:
        return unknown_key(where, allowed_keys(owner))
    if kind == "missing":
        return Problem(where[:-1], f"missing key {str(where[-1])!r}", True)
    context = detail.get("ctx") or {}
    if kind == "value_error":
        text = str(context.get("error", detail["msg"]))
    else:
        text = _plain(kind, context, detail["msg"], value)
    hidden = bool(where) and where[-1] in SECRET_KEYS
    return Problem(where, text if hidden else f"{shown(value)}: {text}")


_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a table",
    "tuple_type": "an array",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


def _plain(kind: str, context: dict[str, Any], message: str, value: object) -> str:
    if kind == "literal_error":
        allowed = [w.strip("'") for w in context["expected"].replace(" or ", ", ").split(", ")]
        near = difflib.get_close_matches(str(value), allowed, n=1)
        return f"allowed: {', '.join(allowed)}" + (f"; did you mean '{near[0]}'?" if near else "")
    if kind in _TYPES:
        return f"allowed: {_TYPES[kind]}"
    bounds = {"greater_than_equal": "ge", "less_than_equal": "le", "greater_than": "gt"}
    if kind in bounds:
        sign = {"ge": "at least", "le": "at most", "gt": "above"}[bounds[kind]]
        return f"allowed: {sign} {context[bounds[kind]]}"
    if kind == "string_too_short":
        return "allowed: a string that is not empty"
    if kind == "string_pattern_mismatch":
        return f"allowed: text that matches {context['pattern']}"
    return message[0].lower() + message[1:]


def _in_file(
    loc: tuple[str | int, ...], model: type[BaseModel]
) -> tuple[KeyPath, type[BaseModel] | None]:
    """Drops from a pydantic location what is not in the file (names of union members).

    Returns the path in the file and the type of the table that holds its last key.
    """
    where: list[str | int] = []
    annotation: Any = model
    owner: type[BaseModel] | None = None
    for part in loc:
        models = _models(annotation)
        if isinstance(part, int):
            where.append(part)
            continue
        field = next((f for m in models for f in [_field(m, part)] if f is not None), None)
        if field is not None:
            owner = next(m for m in models if _field(m, part) is not None)
            where.append(part)
            annotation = field.annotation
        elif _is_mapping(annotation) and not _names_member(annotation, part):
            where.append(part)
            owner, annotation = None, typing.get_args(_strip(annotation))[1]
        elif not _names_member(annotation, part):
            where.append(part)
            owner = models[0] if models else None
    return tuple(where), owner


def _strip(annotation: Any) -> Any:
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _is_mapping(annotation: Any) -> bool:
    return typing.get_origin(_strip(annotation)) is dict


def _names_member(annotation: Any, part: str) -> bool:
    """Whether `part` is pydantic's name of one alternative of a union, not a key."""
    plain = _strip(annotation)
    if typing.get_origin(plain) not in (typing.Union, types.UnionType):
        return False
    names = {getattr(a, "__name__", str(a)) for a in typing.get_args(plain)}
    return part in names or part.startswith(("dict[", "tuple[", "function-", "literal["))


def _models(annotation: Any) -> list[type[BaseModel]]:
    from pydantic import BaseModel

    plain = _strip(annotation)
    if isinstance(plain, type) and issubclass(plain, BaseModel):
        return [plain]
    return [m for a in typing.get_args(plain) for m in _models(a)]


def _field(model: type[BaseModel], alias: str) -> Any:
    return next((f for n, f in model.model_fields.items() if (f.alias or n) == alias), None)
