"""Against what a stage's code may do to its process: block the loop, fork, crash."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable

from preroll.worker import reporting

# A loop that has run nothing for so long is reported, with the line that holds it.
BLOCKED_S = 1.0
LOOK_EVERY_S = 0.5

_main_pid = os.getpid()


def is_forked() -> bool:
    """Whether this is a child that the stage's code forked: it must never touch a client."""
    return os.getpid() != _main_pid


def leave_if_forked() -> None:
    """A forked child that comes back from the stage's code ends here."""
    if is_forked():
        os._exit(0)


def arm(loop: asyncio.AbstractEventLoop, sockets: Callable[[], Iterable[int]]) -> None:
    """Call once, when the process serves. `sockets`: descriptors of listeners and connections."""
    global _main_pid
    _main_pid = os.getpid()
    faulthandler.enable(all_threads=False)  # last words of a crash: the lines that led to it
    os.register_at_fork(after_in_child=lambda: _disarm_child(loop, sockets))
    watch = threading.Thread(target=_watch, args=(loop,), name="preroll-watch", daemon=True)
    watch.start()


def _disarm_child(loop: asyncio.AbstractEventLoop, sockets: Callable[[], Iterable[int]]) -> None:
    """A forked child would keep clients waiting for an end that the parent sends, and share the
    loop's epoll: its copies of the descriptors become /dev/null (the numbers stay taken)."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in [*sockets(), *_poll_descriptor(loop)]:
        with contextlib.suppress(OSError):
            os.dup2(null, number, inheritable=False)
    os.close(null)


def _poll_descriptor(loop: asyncio.AbstractEventLoop) -> list[int]:
    backend = getattr(loop, "_get_backend_id", None)
    if backend is not None:
        return [backend()]
    selector = getattr(loop, "_selector", None)
    return [selector.fileno()] if selector is not None else []


def _watch(loop: asyncio.AbstractEventLoop) -> None:
    main = threading.main_thread().ident or 0
    answered_s = time.monotonic()
    is_reported = False

    def answer() -> None:
        nonlocal answered_s, is_reported
        if is_reported:
            held_s = time.monotonic() - answered_s
            reporting.say(f"the event loop runs again after {held_s:.1f} s")
            is_reported = False
        answered_s = time.monotonic()

    while not loop.is_closed():
        time.sleep(LOOK_EVERY_S)
        held_s = time.monotonic() - answered_s
        if held_s < BLOCKED_S + LOOK_EVERY_S:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(answer)
        elif not is_reported:
            is_reported = True
            frame = sys._current_frames().get(main)
            where = traceback.format_stack(frame)[-1].strip() if frame else "unknown"
            reporting.say(
                f"the event loop has been blocked for {held_s:.1f} s; make the method a plain"
                f" `def` (it runs in a thread then) or await instead. It is at: {where}"
            )
