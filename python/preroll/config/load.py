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

    problems, data = keep_unbuilt_keys_out(data)
    try:
        app = build(data, path)
    except ValidationError as error:
        problems += problems_of(error, App)
        app = what_is_sound(data, path)
    stages = data.get("stage")
    problems += problems_in(app, stages if isinstance(stages, dict) else {})
    if problems:
        raise AppFileError([_line(name, text, p) for p in _ordered(text, problems)], problems)
    return app


def build(data: dict[str, Any], path: Path | None) -> App:
    return App.model_validate({**data, "(path)": path.absolute() if path else None})


def what_is_sound(data: dict[str, Any], path: Path | None) -> App:
    """The tables that are right by themselves: the rules apply to those even if others fail."""

    def validates(part: dict[str, Any]) -> bool:
        try:
            build({"stage": {}, **part}, path)
        except ValidationError:
            return False
        return True

    stages = data.get("stage")
    tables = stages.items() if isinstance(stages, dict) else ()
    sound: dict[str, Any] = {"stage": {k: v for k, v in tables if validates({"stage": {k: v}})}}
    for key in ("serve", "route"):
        if key in data and validates({key: data[key]}):
            sound[key] = data[key]
    return build(sound, path)


def _ordered(text: str, problems: list[Problem]) -> list[Problem]:
    from preroll.config.locate import place

    return sorted(problems, key=lambda p: place(text, p.where, p.is_about_key) or (0, 0))


def _line(name: str, text: str, problem: Problem) -> str:
    from preroll.config.locate import place

    at = place(text, problem.where, problem.is_about_key)
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
