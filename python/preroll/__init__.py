"""Preroll: a serving runtime for model pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from preroll.errors import InputError, UnavailableError
    from preroll.worker.answer import Response
    from preroll.worker.batching import batch
    from preroll.worker.calls import CallError, UndeclaredCallError
    from preroll.worker.context import Context
    from preroll.worker.errors import (
        DeadlineError,
        NotFoundError,
        OverloadedError,
        RequestError,
        StageFatal,
    )
    from preroll.worker.form import Form, Upload
    from preroll.worker.inflight import Item, inflight
    from preroll.worker.session import Session, SessionClosedError
    from preroll.worker.stage import Stage, route

# What a stage's code needs, imported only when it is asked for: `import preroll` stays cheap.
_PUBLIC = {
    "Stage": "worker.stage",
    "route": "worker.stage",
    "batch": "worker.batching",
    "inflight": "worker.inflight",
    "Item": "worker.inflight",
    "Context": "worker.context",
    "Response": "worker.answer",
    "Form": "worker.form",
    "Upload": "worker.form",
    "Session": "worker.session",
    "SessionClosedError": "worker.session",
    "CallError": "worker.calls",
    "UndeclaredCallError": "worker.calls",
    "RequestError": "worker.errors",
    "NotFoundError": "worker.errors",
    "OverloadedError": "worker.errors",
    "DeadlineError": "worker.errors",
    "StageFatal": "worker.errors",
    "InputError": "errors",
    "UnavailableError": "errors",
}

__all__ = [
    "CallError",
    "Context",
    "DeadlineError",
    "Form",
    "InputError",
    "Item",
    "NotFoundError",
    "OverloadedError",
    "RequestError",
    "Response",
    "Session",
    "SessionClosedError",
    "Stage",
    "StageFatal",
    "UnavailableError",
    "UndeclaredCallError",
    "Upload",
    "__version__",
    "batch",
    "inflight",
    "route",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'preroll' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"preroll.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value
