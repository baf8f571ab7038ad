"""`python -m preroll.worker MODULE:CLASS [--uds PATH]`: the process of one replica."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from preroll.errors import InputError
from preroll.worker import guard, lifecycle, reporting, serving
from preroll.worker.app import App
from preroll.worker.errors import StageFatal
from preroll.worker.settings import VARIABLE, Settings

USAGE = "usage: python -m preroll.worker MODULE:CLASS [--uds PATH]"
# Exit statuses: what was given is wrong, the start failed, a StageFatal was raised.
WRONG, FAILED, FATAL = 2, 1, 70
# Time for the answers to requests in flight after a StageFatal.
FATAL_GRACE_S = 0.25


def main(arguments: list[str]) -> int:
    """Serves until SIGTERM. Returns the exit status."""
    reporting.phase("init")
    try:
        target, sockets = parse(arguments)
        settings = Settings.parse(os.environ.get(VARIABLE, "{}"))
        # `python -P` leaves the folder out, and the app's modules are there.
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        stage = lifecycle.make(lifecycle.find_class(target), settings)
        worker = Worker(App(stage, settings, lambda error: worker.fatal(error)))
        lifecycle.check_limits(worker.app)
        uvicorn_server = serving.server(worker.app)
    except InputError as error:
        reporting.say(str(error))
        return WRONG
    except StageFatal as error:
        reporting.fatal(error)
        return FATAL
    return worker.run(uvicorn_server, sockets or serving.inherited_sockets(dict(os.environ)))


def parse(arguments: list[str]) -> tuple[str, list[Any]]:
    if len(arguments) == 1:
        return arguments[0], []
    if len(arguments) == 3 and arguments[1] == "--uds":
        return arguments[0], [serving.unix_socket(arguments[2])]
    raise InputError(USAGE)


class Worker:
    """Runs the start's hooks beside the server, which answers 503 meanwhile."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.exit_status = 0
        self.server: Any = None

    def run(self, uvicorn_server: Any, sockets: list[Any]) -> int:
        if not sockets:
            reporting.say(f"there is no socket to listen on; {USAGE}")
            return WRONG
        self.server = uvicorn_server
        loop = serving.event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(self._serve(sockets))
        return self.exit_status

    async def _serve(self, sockets: list[Any]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        guard.arm(loop, lambda: serving.descriptors(self.server, sockets))
        starting = loop.create_task(self._start())
        try:
            await self.server.serve(sockets=sockets)
        finally:
            starting.cancel()
        if self.exit_status == 0 and self.app.phase == "ready":
            await lifecycle.end(self.app)

    def _stop(self) -> None:
        """Running requests finish, then `close()` runs; how long is the holder's to say."""
        self.server.should_exit = True
        self.app.settled.set()

    async def _start(self) -> None:
        try:
            await lifecycle.start(self.app)
        except asyncio.CancelledError:
            raise
        except StageFatal as error:
            self.fatal(error)
        except InputError as error:  # where it was raised helps nobody who has to mend the input
            reporting.say(f"{self.app.phase}() failed: {error}")
            self.exit_status = WRONG
            self._leave()
        except BaseException as error:
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            reporting.say(f"{self.app.phase}() failed\n{trace.rstrip()}")
            self.exit_status = FAILED
            self._leave()

    def fatal(self, error: StageFatal) -> None:
        """Ends the process with the reason as its last words, once the answers are out."""
        self.exit_status = FATAL
        reporting.fatal(error)
        asyncio.get_running_loop().call_later(FATAL_GRACE_S, self._leave)

    def _leave(self) -> None:
        # Not sys.exit: threads of the stage may hang in a device that no longer answers.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.exit_status)
