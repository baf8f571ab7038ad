"""From text to `App`: read, parse, check; every problem in one error."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from preroll.config.problems import AppFileError, Problem, dotted, problems_of
from preroll.config.schema import App
from preroll.errors import InputError

# An app file is written by hand; a larger file is some other file given by mistake.
MAX_FILE_BYTES = 1 << 20

TOML_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def load_app(path: Path | str) -> App:
    """Reads and checks an app file. Raises `AppFileError` (an `InputError`) with every problem."""
    path = Path(path)
    return parse_app(read_text(path), path)


def read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give the path of an app file"
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"{path}: {len(data)} bytes; allowed: an app file of at most 1 MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None


def parse_app(text: str, path: Path | None = None) -> App:
    """Checks the text of an app file; `path` places relative files and names it in errors."""
    name = str(path) if path else "app"
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise AppFileError([_syntax(name, text, error)], []) from None
    except RecursionError:
        raise AppFileError([f"{name}: nested too deeply"], []) from None
    return app_of_data(data, path, name, text)


def app_of_data(data: dict[str, Any], path: Path | None, name: str, text: str) -> App:
    """Checks parsed data; `name` and `text` say in errors where it came from."""
    from preroll.config.rules import keep_unbuilt_keys_out, problems_in
    from preroll.config.voice import expand

    problems, data = keep_unbuilt_keys_out(data)
    found, data = expand(data)
    problems += found
    try:
        app = build(data, path)
    except ValidationError as error:
        problems += problems_of(error, App)
        app = what_is_sound(data, path, problems)
    stages = data.get("stage")
    problems += problems_in(app, stages if isinstance(stages, dict) else {})
    if problems:
        raise AppFileError(report(name, text, problems), problems)
    return app


def build(data: dict[str, Any], path: Path | None) -> App:
    return App.model_validate({**data, "(path)": path.absolute() if path else None})


def what_is_sound(data: dict[str, Any], path: Path | None, problems: list[Problem]) -> App:
    """The tables that are right by themselves, and stages without their wrong keys: the rules
    apply to those even if something else fails."""

    def validates(part: dict[str, Any]) -> bool:
        try:
            build({"stage": {}, **part}, path)
        except ValidationError:
            return False
        return True

    stages = data.get("stage")
    wrong = {p.where[1:3] for p in problems if p.where[0:1] == ("stage",) and len(p.where) > 2}
    tables = {
        name: {k: v for k, v in table.items() if (name, k) not in wrong}
        for name, table in (stages.items() if isinstance(stages, dict) else ())
        if isinstance(table, dict)
    }
    sound: dict[str, Any] = {
        "stage": {
            name: table for name, table in tables.items() if validates({"stage": {name: table}})
        }
    }
    for key in ("serve", "route", "voice"):
        if key in data and validates({key: data[key]}):
            sound[key] = data[key]
    return build(sound, path)


def report(name: str, text: str, problems: list[Problem]) -> list[str]:
    """One line per problem, in the order of the text."""
    from preroll.config.locate import Places

    places = Places(text)
    placed = [(places.of(p.where, p.is_about_key), p) for p in problems]
    placed.sort(key=lambda pair: pair[0] or (0, 0))
    return [_line(name, at, problem) for at, problem in placed]


def _line(name: str, at: tuple[int, int] | None, problem: Problem) -> str:
    prefix = f"{name}:{at[0]}:{at[1]}" if at else f"{name}:"
    where = dotted(problem.where)
    return f"{prefix} {where}: {problem.message}" if where else f"{prefix} {problem.message}"


def _syntax(name: str, text: str, error: tomllib.TOMLDecodeError) -> str:
    match = TOML_PLACE.fullmatch(str(error))
    if not match:
        return f"{name}: not TOML: {error}"
    line, column = match[2] or len(text.splitlines()) or 1, match[3] or 1
    reason = match[1][0].lower() + match[1][1:]
    if reason == "cannot overwrite a value":
        reason = "a key or table is given twice"
    return f"{name}:{line}:{column} not TOML: {reason}"
