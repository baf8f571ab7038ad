"""What `preroll serve` does once its command line is read: app, controller, progress."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from preroll.cli.progress import Progress, curl_line
from preroll.config import App, load_app
from preroll.config.machine import misfits, this_machine
from preroll.config.quick import quick_app
from preroll.config.values import host_port
from preroll.engines.usage import USAGE
from preroll.errors import InputError
from preroll.serve.ahead import Ahead
from preroll.serve.controller import Controller
from preroll.serve.notify import notify
from preroll.serve.statedir import StateDir, default_state


def serve(options: argparse.Namespace, flags: Sequence[str], begun: Ahead | None) -> int:
    """`begun`: what of the app runs already, for the controller to take."""
    app_or_engine, target = options.app_or_engine, options.target
    app = read_app(app_or_engine, target, flags, tuple(options.listen))
    state = StateDir(options.state or default_state(app_name(app, app_or_engine, target)))
    # What already runs is adopted first, at once; then the same sentences are warnings.
    if begun is not None or not any(state.run.glob("*.sock")):
        refuse_misfits(app)
    if options.detach:
        from preroll.cli.detach import serve_detached

        words = detached_arguments(app_or_engine, target, options.listen, flags)
        return serve_detached(state, words)
    progress = Progress()
    controller = Controller(app, state, progress.event, begun)
    return asyncio.run(run(controller, progress, leave=options.leave, drain_s=options.drain))


def read_app(
    app_or_engine: str, target: str | None, flags: Sequence[str], listen: tuple[str, ...]
) -> App:
    """The app of a file (it has a suffix or exists), or of an engine's name and target."""
    if app_or_engine in USAGE and not Path(app_or_engine).is_file():
        return quick_app(
            app_or_engine, target, flags, serve={"listen": list(listen)} if listen else {}
        )
    if target is not None or flags:
        extra = target if target is not None else f"-- {' '.join(flags)}"
        raise InputError(f"{extra!r}: an app file takes no target and no flags; put them into it")
    app = load_app(Path(app_or_engine))
    if not listen:
        return app
    try:
        checked = tuple(host_port(address) for address in listen)
    except ValueError as error:
        raise InputError(f"--listen {' '.join(listen)}: {error}") from error
    return app.model_copy(update={"serve": app.serve.model_copy(update={"listen": checked})})


def refuse_misfits(app: App) -> None:
    """Raises InputError with everything that this machine cannot do for the app."""
    found = misfits(app, this_machine())
    if found:
        raise InputError("this machine cannot serve it:\n" + "\n".join(f"  {m}" for m in found))


def app_name(app: App, app_or_engine: str, target: str | None) -> str:
    """The name of an app's default state directory."""
    if app.path and app.path.is_file():
        return app.path.stem
    last = (target or "").rstrip("/").rpartition("/")[2]
    name = f"{app_or_engine}-{last}" if last else app_or_engine
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".")[:80]


def detached_arguments(
    app_or_engine: str, target: str | None, listen: Sequence[str], flags: Sequence[str]
) -> list[str]:
    words = [app_or_engine, *([target] if target is not None else [])]
    for address in listen:
        words += ["--listen", address]
    return [*words, *(["--", *flags] if flags else [])]


async def run(controller: Controller, progress: Progress, *, leave: bool, drain_s: float) -> int:
    """Serves until SIGINT or SIGTERM; a second one no longer waits for running requests."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    with progress:
        try:
            await controller.start()
        except BaseException:
            await controller.abandon()
            raise
        for warning in controller.warnings:
            progress.say(f"warning: {warning}")
        ready = asyncio.create_task(announce(controller, progress))
        await stop.wait()
        ready.cancel()
        notify("STOPPING=1")
        if leave:
            await controller.leave()
            progress.say(f"left running; `preroll stop --state {controller.state.root}` ends it")
            return 0
        progress.say("stopping: running requests may finish; again to end them now")
        ending = asyncio.create_task(controller.stop(drain_s))
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait((ending, hurried), return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await controller.hurry()
        with suppress(asyncio.CancelledError):
            await ending
        hurried.cancel()
        progress.say("stopped")
    return 0


async def announce(controller: Controller, progress: Progress) -> None:
    """Says where to send requests, once they will be answered."""
    app = controller.app
    await controller.ready()
    notify("READY=1")
    addresses = controller.house.addresses
    scheme = "https" if app.serve.tls else "http"
    for address in addresses:
        progress.say(f"serving on {scheme}://{address}")
    for line in curl_line(app, f"{scheme}://{addresses[0]}"):
        progress.say(line)
