"""The start of a stage: its class is found, made, loaded, compiled, warmed; and its end."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from typing import Any

from preroll.errors import InputError
from preroll.worker import calls, reporting
from preroll.worker.app import App
from preroll.worker.metrics import Metrics
from preroll.worker.settings import Settings
from preroll.worker.stage import Stage

HOOKS = ("load", "compile", "warm")


def find_class(target: str) -> type[Stage]:
    """The class of `module:Class`. Raises InputError; what the module itself raises passes."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise InputError(f"{target!r}; allowed: module:Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise InputError(f"{target!r}: there is no module {error.name!r}") from None
        raise
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Stage):
        known = [n for n, v in vars(module).items() if is_stage(v, module_name)]
        raise InputError(
            f"{target!r}: {module_name} has no subclass of preroll.Stage with that name; it has:"
            f" {', '.join(known) or 'none'}"
        )
    return found


def is_stage(value: Any, module_name: str) -> bool:
    return isinstance(value, type) and issubclass(value, Stage) and value.__module__ == module_name


def make(cls: type[Stage], settings: Settings) -> Stage:
    """An instance that knows its options before its own `__init__` runs."""
    stage = cls.__new__(cls)
    stage.options = settings.options
    stage.name = settings.stage
    stage.replica = settings.replica
    stage.max_concurrency = settings.max_concurrency
    stage.preroll_settings = settings
    stage.preroll_metrics = Metrics()
    stage.__init__()  # type: ignore[misc]
    return stage


def check_limits(app: App) -> None:
    """A batch that can never be full only waits. Raises InputError."""
    handlers = [*app.routes.defaults.values()]
    for methods in [*app.routes.exact.values(), *(m for _, m in app.routes.patterns)]:
        handlers += methods.values()
    for one in handlers:
        if one.num_gathered > app.settings.max_concurrency:
            raise InputError(
                f"{one.name} gathers up to {one.num_gathered} requests, but max_concurrency is"
                f" {app.settings.max_concurrency}: it can never be full; raise max_concurrency or"
                " lower max_size"
            )


async def start(app: App) -> None:
    """Runs the hooks that the class has; each is a phase of the start."""
    calls.bind(asyncio.get_running_loop())
    for name in HOOKS:
        hook = getattr(app.stage, name, None)
        if hook is not None:
            app.phase = name
            reporting.phase(name)
            await run_hook(app, hook)
    app.phase = "ready"
    reporting.phase("ready")
    app.settled.set()


async def end(app: App) -> None:
    """`close()`, where the class has it; then its connections to other stages are closed."""
    hook = getattr(app.stage, "close", None)
    if hook is not None:
        await run_hook(app, hook)
    await calls.release()


async def run_hook(app: App, hook: Any) -> None:
    if inspect.iscoroutinefunction(hook):
        await hook()
    else:
        await app.threads.run(hook)
