"""A stage's methods as handlers: what each takes, how it is called, which path it answers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from preroll.worker.body import ITERATORS, Decoder, decoder, item_type, wants_iterator
from preroll.worker.form import Form
from preroll.worker.stage import Stage

DEFAULTS = ("__call__", "stream", "session")
CONTEXT_NAMES = ("ctx", "context")


@dataclass
class Handler:
    """One bound method. `annotation` is the body's; `takes_body` False: it has no such parameter.

    `is_inline`: calling it does not block the loop (a coroutine, a generator, a gathering
    method); `num_gathered`: items of one batch or step where it gathers them, else 0.
    """

    name: str
    call: Callable[..., Any]
    is_inline: bool
    num_gathered: int
    takes_body: bool
    annotation: Any
    takes_context: bool
    content_type: bytes | None = None
    is_body_iterator: bool = field(init=False)
    decode: Decoder = field(init=False)

    def __post_init__(self) -> None:
        self.is_body_iterator = self.takes_body and wants_iterator(self.annotation)
        self.decode = decoder(self.annotation)

    def arguments(self, body: Any, context: Any) -> tuple[Any, ...]:
        if self.takes_body:
            return (body, context) if self.takes_context else (body,)
        return (context,) if self.takes_context else ()


class Routes:
    """Finds the handlers of a request: exact paths first, then patterns, then the defaults."""

    def __init__(self, stage: Stage) -> None:
        self.exact: dict[str, dict[str, Handler]] = {}
        self.patterns: list[tuple[re.Pattern[str], dict[str, Handler]]] = []
        self.defaults: dict[str, Handler] = {}
        for name in (*DEFAULTS, "step"):
            member = member_of(type(stage), name)
            if member is not None and (name != "step" or is_gathering(member)):
                self.defaults[name] = handler(stage, name)
        if "stream" in self.defaults or "__call__" in self.defaults:
            self.defaults.pop("step", None)
        self.posts = {name: h for name, h in self.defaults.items() if name != "session"}
        for name in dir(type(stage)):
            member = member_of(type(stage), name)
            for method, path, content_type in getattr(member, "preroll_routes", ()):
                self._add(method, path, handler(stage, name, content_type))
        if not self.defaults and not self.exact and not self.patterns:
            raise TypeError(
                f"{type(stage).__qualname__} answers nothing; give it __call__, stream, session,"
                " or a method with @route"
            )

    @property
    def has_sessions(self) -> bool:
        """Whether any handler takes a WebSocket."""
        methods = [*self.exact.values(), *(methods for _, methods in self.patterns)]
        return "session" in self.defaults or any("WEBSOCKET" in found for found in methods)

    def _add(self, method: str, path: str, found: Handler) -> None:
        if "{" not in path:
            methods = self.exact.setdefault(path, {})
        else:
            pattern = compile_path(path)
            known = next((m for p, m in self.patterns if p == pattern), None)
            methods = {} if known is None else known
            if known is None:
                self.patterns.append((pattern, methods))
        if method in methods:
            raise TypeError(f"{methods[method].name} and {found.name} both answer {method} {path}")
        methods[method] = found

    def find(self, path: str) -> tuple[dict[str, Handler] | None, dict[str, str]]:
        """The handlers of a path by method, and the values of its names; None: the defaults."""
        methods = self.exact.get(path)
        if methods is not None:
            return methods, {}
        for pattern, methods in self.patterns:
            matched = pattern.fullmatch(path)
            if matched:
                return methods, matched.groupdict()
        return None, {}


def compile_path(path: str) -> re.Pattern[str]:
    """`/a/{b}/{c...}`: one segment, and the rest."""
    parts = re.split(r"\{([A-Za-z_]\w*)(\.\.\.)?\}", path)
    text = re.escape(parts[0])
    for name, rest, literal in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        text += f"(?P<{name}>{'.+' if rest else '[^/]+'})" + re.escape(literal)
    return re.compile(text)


def member_of(cls: type, name: str) -> Any:
    """What the class says, without calling anything: a property of the user's must not run."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def is_gathering(member: Any) -> bool:
    """Whether a class's member is a method under `@batch` or `@inflight`."""
    return hasattr(member, "preroll_gathers")


def handler(stage: Stage, name: str, content_type: str | None = None) -> Handler:
    """The handler of one method of a stage."""
    member = member_of(type(stage), name)
    bound = member.__get__(stage, type(stage))
    function = inspect.unwrap(member.function if is_gathering(member) else member)
    body, takes_context, annotation = parameters(function)
    gathers = getattr(member, "preroll_gathers", None)
    if gathers == "batch":
        annotation = item_type(annotation)
    elif gathers == "inflight":
        annotation = Any
    kind = content_type or stage.content_type
    return Handler(
        name=f"{type(stage).__qualname__}.{name}",
        call=bound,
        is_inline=gathers is not None
        or inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function),
        num_gathered=member.max_size if gathers else 0,
        takes_body=body,
        annotation=annotation,
        takes_context=takes_context and gathers is None,
        content_type=kind.encode("latin-1") if kind else None,
    )


def parameters(function: Callable[..., Any]) -> tuple[bool, bool, Any]:
    """Whether a method takes a body and a context, and the body's annotation."""
    known = list(inspect.signature(function).parameters.values())[1:]
    hints = _hints(function)
    needed = [p for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [p.name for p in needed]
    context = next((name for name in names if name in CONTEXT_NAMES), None)
    others = [name for name in names if name != context]
    required = [p.name for p in needed if p.default is p.empty and p.name in others]
    if len(required) > 1 or (context and names.index(context) != len(others[:1])):
        raise TypeError(
            f"{function.__qualname__}({', '.join(names)}): a stage's method takes the body,"
            " then ctx"
        )
    annotation = hints.get(others[0], Any) if others else Any
    return bool(others), context is not None, annotation


# What an annotation that cannot be resolved as a whole may still say.
_PLAIN: dict[str, Any] = {"bytes": bytes, "str": str, "dict": dict, "list": list, "Form": Form}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Type hints; where a name in them exists only for type checkers, what can be told."""
    try:
        return get_type_hints(function)
    except Exception:
        found = getattr(function, "__annotations__", {})
        return {name: _plain(hint) for name, hint in found.items()}


def _plain(hint: Any) -> Any:
    if not isinstance(hint, str):
        return hint
    name = hint.partition("[")[0].rpartition(".")[2]
    return hint if name in ITERATORS else _PLAIN.get(name, Any)
