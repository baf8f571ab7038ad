"""What the source of a stage's class says of itself, read without running a line of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DECORATORS = ("batch", "inflight")


@dataclass(frozen=True, slots=True)
class Batch:
    """One `@batch(max_size=N)` or `@inflight(max_size=N)`; `where`: the method and its line."""

    max_size: int
    where: str


def largest_batch(folder: Path, target: str) -> Batch | None:
    """The largest batch of `module:Class`, whose module is looked for below `folder`.

    None when there is none, or when it cannot be told from the text: a size that is computed, a
    class that is imported or inherits its methods. The worker checks those when it starts.
    """
    module, _, name = target.partition(":")
    source = _source(folder, module)
    if source is None:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None  # the worker will say it, with the place
    found = [
        Batch(size, f"{name}.{method.name} (line {method.lineno})")
        for definition in tree.body
        if isinstance(definition, ast.ClassDef) and definition.name == name
        for method in definition.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        for size in _sizes(method)
    ]
    return max(found, key=lambda batch: batch.max_size, default=None)


def _source(folder: Path, module: str) -> bytes | None:
    stem = folder.joinpath(*module.split("."))
    for path in (stem.with_name(stem.name + ".py"), stem / "__init__.py"):
        try:
            return path.read_bytes()
        except OSError:
            continue
    return None


def _sizes(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    for decorator in method.decorator_list:
        if not isinstance(decorator, ast.Call) or _name(decorator.func) not in DECORATORS:
            continue
        keywords = [word.value for word in decorator.keywords if word.arg == "max_size"]
        for value in [*keywords, *decorator.args[:1]]:
            if isinstance(value, ast.Constant) and type(value.value) is int:
                yield value.value


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
