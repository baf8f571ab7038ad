"""The class that a user writes, and the paths that its methods answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from preroll.worker.metrics import Metrics
from preroll.worker.settings import Settings

if TYPE_CHECKING:
    from preroll.worker.calls import Remote

Method = TypeVar("Method", bound=Callable[..., Any])

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "WEBSOCKET")


class Stage:
    """A model behind Preroll: subclass it and write the methods that you need.

    The start runs `load()`, then `compile()` and `warm()` where they exist; the replica takes
    requests after the last. Then, on any path that no `@route` names:

    - `__call__(self, body)`: one answer to a POST.
    - `stream(self, body)`: a generator of chunks. With `__call__` too, it answers the requests
      that ask for it (`"stream": true` in the body, or `Accept: text/event-stream`).
    - `session(self, socket)`: a WebSocket.

    `close()` runs when the replica stops. All of them may be `async`; the others run in a bounded
    pool of threads, never on the event loop (`session` is always async). A second parameter
    `ctx` receives the request's `Context`.

    The type of `body` decides what it is: `bytes` and `str` are the body as it came, `Form` a
    form, `AsyncIterator[bytes]` the body as it comes, a class with `model_validate` (pydantic)
    is validated, `dict` and `list` are JSON. Without one, JSON and forms are parsed and anything
    else is bytes.
    """

    options: Mapping[str, Any] = {}
    """The stage's own table in the app file."""
    name: str = ""
    """The stage's name in the app file."""
    replica: str = ""
    max_concurrency: int = 1
    """Requests in flight at most; what the app file says."""

    preroll_settings: Settings
    preroll_metrics: Metrics

    threads: ClassVar[int | None] = None
    """Threads for synchronous methods; None: as many as requests in flight."""
    max_body_bytes: ClassVar[int] = 64 << 20
    content_type: ClassVar[str | None] = None
    """The type of answers that say none, such as bytes."""

    def stage(self, name: str) -> Remote:
        """Another stage of the app, to call: one of `calls` in the app file.

        Raises UndeclaredCallError for any other.
        """
        from preroll.worker.calls import remote

        return remote(self.preroll_settings, name)


def route(method: str, path: str, *, content_type: str | None = None) -> Callable[[Method], Method]:
    """Lets a method of a stage answer `method path`; may be repeated.

    `method`: GET, POST, PUT, PATCH, DELETE, or WEBSOCKET for a session. `path` may hold
    `{names}`, each one segment, found in `ctx.path_values`; a last `{name...}` takes the rest.
    `content_type`: of what it returns or yields, when that is bytes or text.
    """
    if method not in METHODS:
        raise ValueError(f"route method {method!r}; allowed: {', '.join(METHODS)}")
    if not path.startswith("/"):
        raise ValueError(f"route path {path!r} does not begin with '/'")

    def mark(function: Method) -> Method:
        marks = getattr(function, "preroll_routes", ())
        function.preroll_routes = (*marks, (method, path, content_type))  # type: ignore[attr-defined]
        return function

    return mark
